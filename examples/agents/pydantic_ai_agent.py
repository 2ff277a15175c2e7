"""An agent on pydantic-ai: python pydantic_ai_agent.py "Refund 15 for order A-1." """

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, FunctionToolset, Tool

from manglecp import Client, Server
from manglecp.client import RequestRefused, ServerError


def make_tool(client, name, description, input_schema):
    async def call_tool(**args):
        try:  # an approved call is executed when the model repeats it
            return (await client.invoke(name, args, wait_for_approval=0.1)).result
        except (ServerError, RequestRefused) as error:
            how = f" To approve: manglecp approvals approve {error.approval} --store desk.db" if error.approval else ""
            return f"{error}{how}"

    return Tool.from_schema(call_tool, name, description, input_schema)


async def main(question):
    async with Server(Path(__file__).with_name("desk"), store="desk.db", workspace=["book"]) as server:
        async with Client(server.as_("ann", ["support"])) as client:

            async def prove_tools(_context):  # before each request to the model
                tools = (await client.evaluate("any", level="full")).to_anthropic()
                return FunctionToolset([make_tool(client, **tool) for tool in tools])

            agent = Agent("anthropic:claude-sonnet-4-5", toolsets=[prove_tools])
            return (await agent.run(question)).output


print(asyncio.run(main(sys.argv[1])))
