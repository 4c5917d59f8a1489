"""Measures which models of torchvision and of timm the torch frontend imports: the smallest of every architecture.

Its environment is another than the project's: it holds torchvision and timm with the release of torch that they need.
What is measured, and the options: `benchmarks.import_coverage`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.import_coverage import cover, coverage_table
from benchmarks.record import write
from planner.frontends.torch import build_module_document

NAME = "vision_model_coverage"
CLASSIFIERS = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 "
    "mobilenet_v2 mobilenet_v3_small regnet_x_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1 swin_t "
    "swin_v2_t vgg11_bn vit_b_32 wide_resnet50_2"
)
SEGMENTERS = "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large"
VIDEO = "mc3_18 mvit_v2_s r2plus1d_18 r3d_18 s3d swin3d_t"
DETECTORS = "fasterrcnn_mobilenet_v3_large_fpn fcos_resnet50_fpn retinanet_resnet50_fpn ssdlite320_mobilenet_v3_large"
TIMM = (
    "beit_base_patch16_224 halonet_h1 test_byobnet cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32 "
    "test_convnext cpubone_nano crossvit_tiny_240 csatv2 cs3darknet_focus_s cspnext_tiny davit_tiny "
    "deit_tiny_patch16_224 densenet121 dla46x_c dpn48b edgenext_xx_small efficientformer_l1 efficientformerv2_s0 "
    "test_efficientnet efficientvim_m1 efficientvit_b0 efficientvit_m0 vit_tiny_patch16_dinov3_qkvb fasternet_t0 "
    "fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 hardcorenas_b hgnetv2_b0 hiera_tiny_224 sam2_hiera_tiny "
    "hrnet_w18_small iformer_t inception_next_atto inception_resnet_v2 inception_v3 inception_v4 lcnetv2_small "
    "levit_128s lowformer_b0 test_mambaout test_coatnet poolformerv2_s12 gmlp_ti16_224 mobilenetv3_small_050 "
    "mobilenetv5_base mobilevit_xxs mvitv2_tiny naflexvit_base_patch16_parfac_gap nasnetalarge nest_tiny "
    "nextvit_small test_nfnet pit_ti_224 pnasnet5large pvt_v2_b0 qwen3_vit_88m rdnet_tiny regnetx_002 repghostnet_050 "
    "repvit_m1 res2next50 resnest14d test_resnet resnetv2_18 rexnet_100 selecsls42 legacy_seresnet18 sequencer2d_s "
    "shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 "
    "swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_legacy_patch16_224 tresnet_m twins_svt_small visformer_tiny test_vit "
    "vit_tiny_r_s16_p8_224 test_vit_relpos samvit_base_patch16_224 vitamin_small_224 volo_d1_224 "
    "ese_vovnet19b_slim_dw legacy_xception xception41p xcit_nano_12_p8_224"
)
FAMILIES = {
    **{f"{name} (torchvision)": "torchvision, images" for name in CLASSIFIERS.split()},
    **{f"{name} (torchvision)": "torchvision, segmentation" for name in SEGMENTERS.split()},
    **{f"{name} (torchvision)": "torchvision, video" for name in VIDEO.split()},
    **{f"{name} (torchvision)": "torchvision, detection" for name in DETECTORS.split()},
    **{f"{name} (timm)": "timm" for name in TIMM.split()},
}
BATCH = 2


def import_model(shown: str, train: str | None) -> dict[str, Any]:
    """Return the document of a model: its training step in training mode, its forward pass in evaluation mode."""
    import torch

    from benchmarks.plain_modules import WithLoss  # here, because the table is read where torch is not installed

    name, _, package = shown.removesuffix(")").partition(" (")
    module, args = (build_timm if package == "timm" else build_torchvision)(name, FAMILIES[shown])
    whole = WithLoss(module, train is not None)
    with torch.set_grad_enabled(train is not None):
        return build_module_document(whole.train(train is not None), args, {}, train=train)


def build_timm(name: str, family: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a model with random weights, and images of its own size."""
    import timm
    import torch

    module = timm.create_model(name)
    return module, (torch.rand(BATCH, *module.default_cfg["input_size"]),)


def build_torchvision(name: str, family: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a model with random weights, and inputs of its kind: images, clips, or images with boxes and labels."""
    import torch
    from torchvision.models import get_model

    if family == "torchvision, images":
        side = 299 if name == "inception_v3" else 224
        return get_model(name, weights=None), (torch.rand(BATCH, 3, side, side),)
    if family == "torchvision, video":
        return get_model(name, weights=None), (torch.rand(BATCH, 3, 16, 224, 224),)
    module = get_model(name, weights=None, weights_backbone=None)
    if family == "torchvision, segmentation":
        return module, (torch.rand(BATCH, 3, 224, 224),)
    boxes, labels = torch.tensor([[10.0, 20.0, 90.0, 80.0]]), torch.tensor([1])
    targets = [{"boxes": boxes, "labels": labels} for _ in range(BATCH)]
    return module, ([torch.rand(3, 224, 224) for _ in range(BATCH)], targets)


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    return coverage_table(result)


def main() -> None:
    """Import models and write results/vision_model_coverage.json after each of them."""
    import timm
    import torch
    import torchvision

    torch.set_num_threads(1)
    packages = {"torch": torch, "torchvision": torchvision, "timm": timm}
    versions = {name: package.__version__.partition("+")[0] for name, package in packages.items()}
    # Loads what every child process then has; torch cannot fork a process that has differentiated.
    import_model("resnet18 (torchvision)", None)
    for result in cover(NAME, FAMILIES, import_model):
        write(NAME, {"versions": versions} | result, show=False)


if __name__ == "__main__":
    main()
