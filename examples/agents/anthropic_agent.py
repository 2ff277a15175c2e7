"""An agent on the Anthropic SDK: python anthropic_agent.py "Refund 15 for order A-1" """

import asyncio
import json
import sys
from pathlib import Path

from anthropic import AsyncAnthropic

from manglecp import Client, Server
from manglecp.client import RequestRefused, ServerError

MODEL = {"model": "claude-sonnet-4-5", "max_tokens": 1024}


async def call_tool(client, call):
    try:  # an approved call is executed when the model repeats it
        outcome = await client.invoke(call.name, call.input, wait_for_approval=0.1)
        return {"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(outcome.result)}
    except (ServerError, RequestRefused) as error:
        how = f" To approve: manglecp approvals approve {error.approval} --store desk.db" if error.approval else ""
        return {"type": "tool_result", "tool_use_id": call.id, "is_error": True, "content": f"{error}{how}"}


async def main(question):
    messages = [{"role": "user", "content": question}]
    async with Server(Path(__file__).with_name("desk"), store="desk.db", workspace=["book"]) as server:
        async with Client(server.as_("ann", ["support"])) as client, AsyncAnthropic() as model:
            while True:
                tools = (await client.evaluate("any", level="full")).to_anthropic()
                reply = await model.messages.create(messages=messages, tools=tools, **MODEL)
                calls = [block for block in reply.content if block.type == "tool_use"]
                if not calls:
                    return "".join(block.text for block in reply.content if block.type == "text")
                results = [await call_tool(client, call) for call in calls]
                messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]


print(asyncio.run(main(sys.argv[1])))
