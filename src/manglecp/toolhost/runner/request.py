"""What a run is asked to do: upstream's run request, without its queue.

Where upstream takes an unknown control mode for the default, we refuse: whoever misspells ``POLICY_ONLY`` should not
get a run without a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from manglecp.toolhost.runner.canonical import canonical
from manglecp.toolhost.runner.control import ControlMode
from manglecp.toolhost.runner.errors import RunnerError
from manglecp.toolhost.runner.menu import Menu, Offer
from manglecp.toolhost.runner.patch import LARGEST_INPUTS

__all__ = ["RunRequest"]

META_TAG: Final = "tag.meta"
"""Actions that every menu has, whatever tags were asked for."""


@dataclass(frozen=True)
class RunRequest:
    """No ``candidate_tags`` means every action; no ``allowed_tools`` means every one that is not blocked."""

    goal_id: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    candidate_tags: tuple[str, ...] = ()
    control_mode: ControlMode = ControlMode.FALLBACK_ONLY
    request_id: str | None = None
    allowed_tools: tuple[str, ...] = ()
    blocked_tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.goal_id:
            raise RunnerError("a run request has a goal_id")
        try:
            size = len(canonical(self.goal_id)) + len(canonical(dict(self.inputs)))
        except ValueError as error:
            raise RunnerError(f"the run request cannot be written down: {error}") from None
        if size > LARGEST_INPUTS:
            raise RunnerError(f"the inputs have more than {LARGEST_INPUTS} bytes")

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> RunRequest:
        """The request in a JSON object. Members that concern others, such as ``_queue``, are left to them."""
        goal_id, inputs = document.get("goal_id"), document.get("inputs", {})
        mode = document.get("control_mode", ControlMode.FALLBACK_ONLY)
        capabilities = document.get("_capabilities", {})
        request_id = document.get("request_id")
        if not isinstance(goal_id, str) or not isinstance(inputs, dict) or not isinstance(capabilities, dict):
            raise RunnerError("goal_id is a text, inputs and _capabilities are objects")
        if mode not in set(ControlMode):
            raise RunnerError(f"unknown control_mode; there are {', '.join(ControlMode)}")
        if request_id is not None and not isinstance(request_id, str):
            raise RunnerError("request_id is a text")
        return cls(
            goal_id,
            inputs,
            _texts(document, "candidate_tags"),
            ControlMode(mode),
            request_id,
            _texts(capabilities, "allowed_tools"),
            _texts(capabilities, "blocked_tools"),
        )

    def menu(self, offers: Iterable[Offer]) -> Menu:
        """The menu of these actions, as far as the request wants and permits them."""
        menu = Menu.of(offers)
        if self.candidate_tags:
            menu = menu.tagged((*self.candidate_tags, META_TAG))
        return menu.permitted(self.allowed_tools, self.blocked_tools)


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise RunnerError(f"{name} is a list of texts")
    return tuple(found)
