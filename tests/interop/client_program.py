"""A client of MCP that does one task: ``client_program.py SDK MODE TASK``, with ``mcp`` or ``fastmcp`` as SDK.

TASK is JSON: the server (``command``, or ``url`` and ``token``), the ``calls``, and the ``decisions`` of the user on
approvals. A handle in a call may be the name of a tool that an earlier call returned. What was received is written as
JSON. Types are not checked: FastMCP is not installed where the checks run.
"""

import asyncio
import importlib
import json
import sys
from contextlib import AsyncExitStack
from typing import Any


async def connect(sdk: str, mode: str, task: dict[str, Any], forms: list[str], stack: AsyncExitStack) -> Any:
    types: Any = importlib.import_module("mcp_types")

    def decide(message: str) -> Any:
        forms.append(message)
        return types.ElicitResult(action="accept", content={"approve": task["decisions"].pop(0)})

    if sdk == "fastmcp":

        async def answer(message: str, *_: Any) -> Any:
            return decide(message)

        transports: Any = importlib.import_module("fastmcp.client.transports")
        if "url" in task:
            transport = transports.StreamableHttpTransport(task["url"], auth=task["token"])
        else:
            transport = transports.StdioTransport(task["command"][0], task["command"][1:])
        return importlib.import_module("fastmcp").Client(transport, mode=mode, elicitation_handler=answer)

    async def respond(_: Any, params: Any) -> Any:
        return decide(params.message)

    mcp: Any = importlib.import_module("mcp")
    if "url" in task:
        headers = {"Authorization": f"Bearer {task['token']}"}
        http: Any = importlib.import_module("httpx2").AsyncClient(headers=headers, timeout=60)
        await stack.enter_async_context(http)
        streamable_http: Any = importlib.import_module("mcp.client.streamable_http")
        transport = streamable_http.streamable_http_client(task["url"], http_client=http)
    else:
        transport = mcp.StdioServerParameters(command=task["command"][0], args=task["command"][1:])
    return mcp.Client(transport, mode=mode, elicitation_callback=respond)


async def main(sdk: str, mode: str, task: dict[str, Any]) -> None:
    forms: list[str] = []
    handles: dict[str, str] = {}
    results = []
    options = {"raise_on_error": False} if sdk == "fastmcp" else {}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect(sdk, mode, task, forms, stack))
        listed = await client.list_tools()
        for tool, arguments in task["calls"]:
            if arguments.get("handle") in handles:
                arguments["handle"] = handles[arguments["handle"]]
            received = await client.call_tool(tool, arguments, **options)
            content = received.structured_content
            handles |= {found["name"]: found["handle"] for found in content.get("tools", ())}
            results.append({"failed": bool(received.is_error), "text": received.content[0].text, "content": content})
        tools = [tool.name for tool in (listed if sdk == "fastmcp" else listed.tools)]
        version = client.protocol_version
    sys.stdout.write(json.dumps({"version": version, "tools": tools, "results": results, "forms": forms}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
