"""Keep libraries from writing over the screen, and have them ask between their steps whether to go on.

Their progress bars are the places where they do so: each is silenced, and each step of it is a beat.
So is every layer that is built or called, and every function that numba compiles.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from specdec_tui.backends.pair import Progress, ReportProgress

_LOGGERS = (
    *("transformers", "huggingface_hub", "accelerate", "torch", "gguf", "safetensors", "bitsandbytes"),
    *("httpx", "httpx2", "httpcore2", "asyncio"),
)
_PAUSE = 0.05  # seconds between two questions


class Heart:
    """A progress report that is repeated while a library is at work, so that it can stop the work by raising."""

    def __init__(self, progress: ReportProgress) -> None:
        self._progress = progress
        self._last: Progress | None = None
        self._asked = 0.0

    def report(self, step: Progress) -> None:
        self._last, self._asked = step, time.monotonic()
        self._progress(step)

    def beat(self, *_: Any) -> None:
        """Cheap enough for every layer and tensor."""
        if self._last is not None and time.monotonic() - self._asked > _PAUSE:
            self.report(self._last)

    def beats(self) -> bool:
        """A beat, for who asks whether to stop: that is told by raising alone."""
        self.beat()
        return False

    def beat_at(self, stage: str) -> None:
        """The same, where it has turned out what the step is at, of which nothing was counted."""
        if self._last is not None and self._last.stage != stage:
            self.report(Progress(stage))
        self.beat()


@contextmanager
def quiet(beat: Callable[..., None] = lambda *_: None) -> Iterator[None]:
    """No progress bars, warnings or log lines below an error inside. `beat` is called between the steps there.

    What a library logs stays silenced: it may have something to say in a run, too, and the screen is not its own.
    transformers, where it is used inside, is imported before.
    """
    hush()
    with ExitStack() as scope:
        scope.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        scope.enter_context(_silent_bars(beat))
        scope.enter_context(_between_layers(beat))
        yield


def hush() -> None:
    """From here on libraries log nothing but what is critical."""
    for logger in map(logging.getLogger, _LOGGERS):
        logger.setLevel(logging.CRITICAL)


@contextmanager
def _silent_bars(beat: Callable[..., None]) -> Iterator[None]:
    """Every bar of tqdm's, whoever draws it. Not by the libraries' own switches: some of their bars have none."""
    from tqdm.std import tqdm

    begin = tqdm.__init__

    def silently(self: Any, *arguments: Any, **options: Any) -> None:
        # "gui" marks the bar that reports to us: tqdm sets up no printer for it.
        begin(self, *arguments, **(options if options.get("gui") else options | {"disable": True}))

    def steps(self: Any) -> Iterator[Any]:
        try:
            for item in self.iterable:
                beat()
                yield item
                self.update(1)
        finally:
            self.close()

    with ExitStack() as scope:
        scope.enter_context(_replaced(tqdm, "__init__", silently))
        scope.enter_context(_replaced(tqdm, "__iter__", steps))
        if "transformers" in sys.modules:
            from transformers.utils import logging as transformers_logging

            # Else a bar of transformers' that draws nothing, and asks nobody, takes the place of tqdm's.
            scope.enter_context(_replaced(transformers_logging, "_tqdm_active", True))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]  # as it is held: a method that is made anew whenever it is asked for stays one
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _between_layers(beat: Callable[..., None]) -> Iterator[None]:
    from torch.nn.modules import module

    hooks = [module.register_module_module_registration_hook(beat), module.register_module_forward_pre_hook(beat)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def between_compilations(beat: Callable[..., None]) -> Iterator[None]:
    """`beat` between the passes of numba's compiler, which has to be imported already."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            beat()

        def on_end(self, event: Any) -> None:
            """Nothing to ask."""

    with event.install_listener("numba:run_pass", Listener()):
        yield
