"""An agent on the OpenAI SDK, Responses API: python openai_agent.py "Refund 15 for order A-1." """

import asyncio
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI

from manglecp import Client, Server
from manglecp.client import RequestRefused, ServerError


async def call_tool(client, call):
    try:  # an approved call is executed when the model repeats it
        outcome = await client.invoke(call.name, json.loads(call.arguments), wait_for_approval=0.1)
        output = json.dumps(outcome.result)
    except (ServerError, RequestRefused) as error:
        how = f" To approve: manglecp approvals approve {error.approval} --store desk.db" if error.approval else ""
        output = f"{error}{how}"
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def main(question):
    messages = [{"role": "user", "content": question}]
    async with Server(Path(__file__).with_name("desk"), store="desk.db", workspace=["book"]) as server:
        async with Client(server.as_("ann", ["support"])) as client, AsyncOpenAI() as model:
            while True:
                tools = (await client.evaluate("any", level="full")).to_openai()
                reply = await model.responses.create(model="gpt-5", input=messages, tools=tools)
                calls = [item for item in reply.output if item.type == "function_call"]
                if not calls:
                    return reply.output_text
                messages += [*reply.output, *[await call_tool(client, call) for call in calls]]


print(asyncio.run(main(sys.argv[1])))
