"""Keep libraries from writing over the screen while they load models."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("transformers", "huggingface_hub", "accelerate", "torch")


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, warnings or log lines below an error inside; the previous state after."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    hub_bars, transformers_bars = not are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
    levels = [(logger, logger.level) for logger in map(logging.getLogger, _LOGGERS)]
    disable_progress_bars()
    transformers_logging.disable_progress_bar()
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
        if hub_bars:
            enable_progress_bars()
        if transformers_bars:
            transformers_logging.enable_progress_bar()
