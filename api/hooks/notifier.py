"""The threads that deliver. Each takes what is due, one after the other, and looks again after a while."""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import OperationalError

from api.hooks.register import Register
from api.hooks.sending import Sender, Undelivered
from planner.errors import InvalidRequest

log = logging.getLogger("shardplan.hooks")

AT_ONCE = 4
LOOK_S = 1.0


class Notifier:
    """Delivers until it is stopped; what is under way then is tried again later, here or elsewhere."""

    def __init__(self, register: Register, sender: Sender) -> None:
        self.register, self.sender = register, sender
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="notifier", daemon=True) for _ in range(AT_ONCE)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self.deliver():
                    continue
            except OperationalError as error:
                log.warning("database: %s", error.orig)
            self._stopping.wait(LOOK_S)

    def deliver(self) -> bool:
        """Tries what has been due for the longest; False where nothing is."""
        delivery = self.register.take()
        if delivery is None:
            return False
        try:
            self.sender.send(delivery)
        except (InvalidRequest, Undelivered, OSError) as error:
            log.warning("webhook %s: attempt %d: %s", delivery.webhook, delivery.attempts, error)
            self.register.failed(delivery)
        else:
            self.register.arrived(delivery)
        return True
