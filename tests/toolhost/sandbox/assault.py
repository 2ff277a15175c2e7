"""Makes every attack, each in a process of its own and on files of its own, and reports what became of it.

Run under `python -I -S` as the user who attacks: `assault.py SOURCE PROFILE SCENE NAMES`, the last two as JSON. Forking
from one interpreter is what makes two hundred attacks a matter of seconds.
"""

import json
import os
import sys
from pathlib import Path

sys.path[:0] = [sys.argv[1], str(Path(__file__).parent)]

from attacks import ATTACKS, Scene  # type: ignore[import-not-found]  # noqa: E402  # a neighbour, not of a package here

from manglecp.toolhost.sandbox import Policy, Profile, apply  # noqa: E402


def prepare(scene: Scene, name: str) -> Scene:
    folder = Path(scene.workspace) / name
    for part in ("workspace", "outside"):
        (folder / part).mkdir(parents=True)
    for file in ("secret", "victim"):
        (folder / "outside" / file).write_bytes(b"the secret")
    prepared: Scene = scene._replace(workspace=str(folder / "workspace"), outside=str(folder / "outside"))
    return prepared


def attempt(profile: Profile, name: str, scene: Scene) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        answer = "neither worked nor was stopped"
        try:
            apply(profile, Policy(workspace=(scene.workspace,)))
            ATTACKS[name](scene)
            answer = "worked"
        except (MemoryError, OSError, RuntimeError) as error:
            answer = f"stopped by {error!r}"
        finally:
            os.write(1, answer.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read().strip()
    os.waitpid(child, 0)
    return answer


def main(profile: Profile, scene: Scene, names: list[str]) -> None:
    print(json.dumps({name: attempt(profile, name, prepare(scene, name)) for name in names}))


if __name__ == "__main__":
    main(sys.argv[2], Scene(*json.loads(sys.argv[3])), json.loads(sys.argv[4]))  # type: ignore[arg-type]  # checked by apply
