"""A router for the clients of several servers: it sends an intent to the servers that list it, and merges their tools.

Each server evaluates the intent with the working state of its own client, and receives only facts whose predicates it
lists, so that no server receives facts meant for another. Of several tools with the same name, the router keeps the one
with the highest score. The tools are sorted by score; those without a score come last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manglecp.client.client import Client
from manglecp.client.errors import ClientError, RequestRefused
from manglecp.client.fact_checks import fact_objects
from manglecp.client.results import EvaluationResult, InvocationResult, Tool, unproven_tool_error
from manglecp.client.working_state import FactInput


@dataclass(frozen=True, slots=True)
class RoutedTool:
    """A tool and the client of the server that has it."""

    tool: Tool
    client: Client = field(repr=False)

    @property
    def name(self) -> str:
        return self.tool.name

    async def invoke(self, args: Mapping[str, Any] | None = None, **options: Any) -> InvocationResult:
        """Invoke the tool; ``options`` are keyword arguments of :meth:`Client.invoke`."""
        return await self.client.invoke(self.tool, args, **options)


@dataclass(frozen=True, slots=True)
class RoutedEvaluation:
    """The tools of all servers, best first, and the results and the errors by the name of the client."""

    tools: tuple[RoutedTool, ...]
    evaluations: Mapping[str, EvaluationResult]
    failures: Mapping[str, ClientError]

    def __getitem__(self, name: str) -> RoutedTool:
        for tool in self.tools:
            if tool.name == name:
                return tool
        raise unproven_tool_error(name, [tool.name for tool in self.tools])


class Router:
    """Connected clients, named by the id of the server's domain; the second client with an id is named ``id#2``."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients: dict[str, Client] = {}
        for client in clients:
            id_ = client.manifest.domain.id
            earlier_count = sum(1 for name in self.clients if name.split("#")[0] == id_)
            self.clients[f"{id_}#{earlier_count + 1}" if earlier_count else id_] = client

    def choose(self, intent: str, categories: Collection[str] = ()) -> dict[str, Client]:
        """Return the clients, by name, of the servers in one of the categories (or in any) that list the intent.

        If no server lists the intent, all clients of the categories are returned: lists may be incomplete.
        """
        in_categories = {
            name: client
            for name, client in self.clients.items()
            if not categories or not set(categories).isdisjoint(client.manifest.domain.categories or ())
        }
        with_intent = {
            name: client
            for name, client in in_categories.items()
            if any(description.name == intent for description in client.manifest.intents)
        }
        return with_intent or in_categories

    async def evaluate(
        self,
        intent: str,
        params: Mapping[str, Any] | None = None,
        facts: Iterable[FactInput] = (),
        *,
        categories: Collection[str] = (),
        **options: Any,
    ) -> RoutedEvaluation:
        """Evaluate the intent on the servers that :meth:`choose` returns. Raises the first error if all of them fail.

        ``options`` are keyword arguments of :meth:`Client.evaluate`.
        """
        clients = self.choose(intent, categories)
        if not clients:
            names = ", ".join(sorted(categories)) or "any"
            raise RequestRefused("no_server", f"no server has one of the categories {names}")
        all_facts = fact_objects(facts)  # invalid ones, too: the client reports them

        async def evaluate_on(client: Client) -> EvaluationResult:
            predicates = {schema.predicate for schema in client.manifest.facts_profile.predicates}
            client_facts = [
                fact
                for fact in all_facts
                if not predicates or not isinstance(fact, Mapping) or fact.get("pred") in predicates
            ]
            return await client.evaluate(intent, params, client_facts, **options)

        results = await asyncio.gather(*map(evaluate_on, clients.values()), return_exceptions=True)
        evaluations: dict[str, EvaluationResult] = {}
        failures: dict[str, ClientError] = {}
        for name, result in zip(clients, results, strict=True):
            if isinstance(result, EvaluationResult):
                evaluations[name] = result
            elif isinstance(result, ClientError):
                failures[name] = result
            else:
                raise result
        if not evaluations:
            raise next(iter(failures.values()))
        tools = (RoutedTool(tool, clients[name]) for name, result in evaluations.items() for tool in result)
        return RoutedEvaluation(_best_tools(tools), evaluations, failures)


def _best_tools(tools: Iterable[RoutedTool]) -> tuple[RoutedTool, ...]:
    """Return the tools by falling score; of several with one name, only the best."""
    best_by_name: dict[str, RoutedTool] = {}
    for tool in sorted(tools, key=_score, reverse=True):
        best_by_name.setdefault(tool.name, tool)
    return tuple(best_by_name.values())


def _score(tool: RoutedTool) -> float:
    score = tool.tool.score
    return -math.inf if score is None else score
