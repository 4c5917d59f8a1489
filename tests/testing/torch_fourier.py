"""Functions of tensors with complex numbers: rotary embeddings, Fourier transforms and layers made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

ROWS, CUBE, HEADS = (4, 6), (4, 6, 8), (2, 4, 8, 16)


def rope(q: Any, angles: Any) -> Any:
    """Su and others, "RoFormer", 2021, as a product of complex numbers."""
    turned = torch.view_as_complex(q.reshape(2, 4, 8, 8, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(3)


def complex_numbers(q: Any, w: Any) -> Any:
    """Sums, quotients, conjugates, rearrangements and lengths of complex numbers."""
    z, c = torch.complex(q, w), torch.view_as_complex(torch.stack([w, q.exp()], -1))
    mixed = torch.cat([(z + 2 * c).transpose(0, 1), z.conj().T / 3 - 1j * c.T], 1) / (c.T.unbind(1)[0][:, None] + 2)
    return mixed.abs().sum(1) + mixed.real[:, 0] * mixed.imag[:, 1] + torch.exp(mixed).angle()[:, 2]


def mixed_tokens(x: Any) -> Any:
    """Lee-Thorp and others, "FNet", 2022."""
    return torch.fft.fftn(x, dim=(1, 2)).real


def global_filter(x: Any, weight: Any) -> Any:
    """Rao and others, "Global filter networks", 2021: over the dims of an image whose last dim are channels."""
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(weight)
    return torch.fft.irfft2(spectrum, s=x.shape[1:3], dim=(1, 2), norm="ortho")


def spectral_convolution(x: Any, real: Any, imag: Any) -> Any:
    """Li and others, "Fourier neural operator", 2021: products of the lowest modes, and zeros."""
    spectrum = torch.fft.rfft(x)
    kept = torch.zeros(x.shape[0], real.shape[1], spectrum.shape[-1], dtype=spectrum.dtype, device=x.device)
    kept[..., :4] = torch.einsum("bim,iom->bom", spectrum[..., :4], torch.complex(real, imag))
    return torch.fft.irfft(kept, n=x.shape[-1])


def long_convolution(x: Any, kernel: Any) -> Any:
    """Poli and others, "Hyena hierarchy", 2023: a causal convolution as long as the sequence."""
    size = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n=size) * torch.fft.rfft(kernel, n=size), n=size)[..., : x.shape[-1]]


def autocorrelation(q: Any, k: Any) -> Any:
    """Wu and others, "Autoformer", 2021."""
    return torch.fft.irfft(torch.fft.rfft(q, dim=1) * torch.conj(torch.fft.rfft(k, dim=1)), dim=1)


def complex_products(x: Any, y: Any) -> Any:
    """Matrix products and contractions."""
    z = torch.complex(x, y)
    return (z @ z.mT).abs(), (z.mH @ z).imag, torch.einsum("ij,ij->i", z, z.conj()).real


def shifted(x: Any) -> Any:
    return torch.fft.ifftshift(torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1)), dim=-1).imag


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "complex rope": (rope, (HEADS, (8, 8))),
    "complex numbers": (complex_numbers, (ROWS, ROWS)),
    "complex products": (complex_products, (ROWS, ROWS)),
    "complex transforms": (
        lambda x, y: (
            torch.fft.fft(torch.complex(x, y)).abs(),
            torch.fft.ifft(torch.complex(x, y), 7, 0, "ortho").imag,
            torch.fft.fftn(torch.complex(x, y), (5, -1, 8), (0, 1, 2), "forward").real,
            torch.fft.ifft2(torch.complex(x, y), (4, 9)).real,
        ),
        (CUBE, CUBE),
    ),
    "transforms of real numbers": (
        lambda x: (
            torch.fft.fft2(x).imag,
            torch.fft.ifftn(x, dim=(0, 2)).imag,
            torch.fft.rfft(x).abs(),
            torch.fft.rfft(x, 7, 1, "ortho").imag,
            torch.fft.rfftn(x, (3, 5, 4), norm="forward").real,
            torch.fft.ihfft(x, norm="ortho").imag,
        ),
        (CUBE,),
    ),
    "transforms to real numbers": (
        lambda x, y: (
            torch.fft.irfft(torch.complex(x, y)),
            torch.fft.irfft(torch.complex(x, y), 7, 1),
            torch.fft.irfft2(torch.complex(x, y), (5, 12), norm="ortho"),
            torch.fft.irfftn(torch.complex(x, y)),
            torch.fft.hfft(torch.complex(x, y), 5, 0, "forward"),
            torch.fft.irfft(x),
        ),
        (CUBE, CUBE),
    ),
    "shifted transform": (shifted, (CUBE,)),
    "mixed tokens": (mixed_tokens, (CUBE,)),
    "global filter": (global_filter, ((2, 6, 7, 3), (6, 4, 3, 2))),
    "spectral convolution": (spectral_convolution, ((2, 3, 16), (3, 5, 4), (3, 5, 4))),
    "long convolution": (long_convolution, (CUBE, (6, 8))),
    "autocorrelation": (autocorrelation, (CUBE, CUBE)),
}
