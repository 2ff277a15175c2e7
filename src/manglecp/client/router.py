"""One client for several servers: intents go to those whose domain fits; the best of similar tools is kept.

Each server is evaluated on its own, with its own working state, and receives only facts whose predicates it lists, so
that no server receives facts meant for another. Tools of one name are similar. Scores are hints (OPEN-57): they choose
between similar tools and order the rest; tools without a score come last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manglecp.client.client import Client
from manglecp.client.errors import ClientError, RequestRefused
from manglecp.client.results import EvaluationResult, InvocationResult, Tool, unproven_tool
from manglecp.wire.messages import UNSET


@dataclass(frozen=True, slots=True)
class RoutedTool:
    """A tool and the client of the server that has it."""

    tool: Tool
    client: Client = field(repr=False)

    @property
    def name(self) -> str:
        return self.tool.name

    async def invoke(self, args: Mapping[str, Any] | None = None, **more: Any) -> InvocationResult:
        return await self.client.invoke(self.tool, args, **more)


@dataclass(frozen=True, slots=True)
class RoutedEvaluation:
    """The tools of all servers, best first; ``failures`` are the errors of servers that did not respond."""

    tools: tuple[RoutedTool, ...]
    evaluations: Mapping[str, EvaluationResult]
    failures: Mapping[str, ClientError]

    def __getitem__(self, name: str) -> RoutedTool:
        for tool in self.tools:
            if tool.name == name:
                return tool
        raise unproven_tool(name, [tool.name for tool in self.tools])


class Router:
    """Connected clients by the id of their domain; of two with one id, the later is ``id#2``."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients: dict[str, Client] = {}
        for client in clients:
            name = client.manifest.domain.id
            same = sum(1 for other in self.clients if other.split("#")[0] == name)
            self.clients[name if not same else f"{name}#{same + 1}"] = client

    def choose(self, intent: str, categories: Collection[str] = ()) -> dict[str, Client]:
        """Return the servers of these categories that list the intent; if none lists it, all of these categories.

        Lists may be incomplete (MANI-13).
        """
        fitting = {
            name: client
            for name, client in self.clients.items()
            if not categories or not set(categories).isdisjoint(_categories(client))
        }
        listing = {
            name: client
            for name, client in fitting.items()
            if any(listed.name == intent for listed in client.manifest.intents)
        }
        return listing or fitting

    async def evaluate(
        self,
        intent: str,
        params: Mapping[str, Any] | None = None,
        facts: Iterable[Mapping[str, Any]] = (),
        *,
        categories: Collection[str] = (),
        **more: Any,
    ) -> RoutedEvaluation:
        """Evaluate the intent on all servers that fit, concurrently; ``more`` goes to :meth:`Client.evaluate`."""
        chosen = self.choose(intent, categories)
        if not chosen:
            raise RequestRefused(
                "no_server", f"no server has one of the categories {', '.join(sorted(categories)) or 'any'}"
            )
        all_facts = list(facts)
        results = await asyncio.gather(
            *(_evaluate(client, intent, params, all_facts, more) for client in chosen.values()), return_exceptions=True
        )
        evaluations: dict[str, EvaluationResult] = {}
        failures: dict[str, ClientError] = {}
        for name, result in zip(chosen, results, strict=True):
            if isinstance(result, EvaluationResult):
                evaluations[name] = result
            elif isinstance(result, ClientError):
                failures[name] = result
            else:
                raise result
        if not evaluations:
            raise next(iter(failures.values()))
        tools = (RoutedTool(tool, chosen[name]) for name, result in evaluations.items() for tool in result)
        return RoutedEvaluation(_best_tools(tools), evaluations, failures)


async def _evaluate(
    client: Client, intent: str, params: Mapping[str, Any] | None, facts: list[Any], more: Any
) -> EvaluationResult:
    listed = {schema.predicate for schema in client.manifest.facts_profile.predicates}
    accepted = [fact for fact in facts if not listed or not isinstance(fact, Mapping) or fact.get("pred") in listed]
    return await client.evaluate(intent, params, accepted, **more)


def _categories(client: Client) -> tuple[str, ...]:
    categories = client.manifest.domain.categories
    return () if categories is UNSET else categories


def _best_tools(tools: Iterable[RoutedTool]) -> tuple[RoutedTool, ...]:
    best: dict[str, RoutedTool] = {}
    for tool in tools:
        rival = best.get(tool.name)
        if rival is None or _score(tool) > _score(rival):
            best[tool.name] = tool
    return tuple(sorted(best.values(), key=_score, reverse=True))


def _score(tool: RoutedTool) -> float:
    score = tool.tool.score
    return -math.inf if score is None else score
