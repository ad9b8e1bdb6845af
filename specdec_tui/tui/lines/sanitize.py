"""The former place of `specdec_tui.doors.characters`."""

from specdec_tui.doors.characters import copyable, editable, visible

__all__ = ["copyable", "editable", "visible"]
