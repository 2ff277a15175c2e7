"""Credentials: what holds, what does not, and what a file or a token may not say."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from manglecp.intent import ANONYMOUS, Identity, SafetyData, approval_waiver
from manglecp.server.auth import LOCAL, CombinedAuth, tokens as tokens_module
from manglecp.server.auth.jwt import JwtAuth, JwtSettings
from manglecp.server.auth.tokens import TokensError, TokensFile
from manglecp.server.auth_config import AuthConfig
from tests.server.desk import PATIENCE, encoded, intent
from tests.server.house import JSON, house


def entry(token: str, identity: str = "ann", **more: str) -> str:
    lines = [f'sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"', f'identity = "{identity}"']
    return "\n".join(["[[token]]", *lines, *(f"{key} = {value}" for key, value in more.items()), ""])


def written(folder: Path, *entries: str, mode: int = 0o600) -> Path:
    path = folder / "tokens.toml"
    path.write_text("\n".join(entries))
    path.chmod(mode)
    return path


# --- files of tokens -------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-09", "SEC-10", "SEC-12")
async def test_tokens_and_keys_are_known_by_their_hashes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        entry("t-1", permissions='["look", "touch"]', trust='"operator"'),
        entry("k-1", "robot", scheme='"api_key"'),
    )
    auth = TokensFile(path)
    assert (auth.required, auth.schemes) == (True, ("bearer", "api_key"))
    hashed = hashlib.sha256(b"t-1").hexdigest()
    assert await auth.identify("bearer", "t-1") == Identity("ann", frozenset({"look", "touch"}), "operator", hashed)
    robot = await auth.identify("api_key", "k-1")
    assert robot is not None
    assert robot[:3] == ("robot", frozenset(), "user")
    assert await auth.identify("bearer", "k-1") == robot
    for scheme, wrong in (
        ("bearer", "t-2"),
        ("api_key", "t-1"),
        ("bearer", hashed),
        ("bearer", ""),
        ("oauth2", "t-1"),
        ("bearer", "t\udc80"),
    ):
        assert await auth.identify(scheme, wrong) is None


async def test_a_token_expires(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    auth = TokensFile(written(tmp_path, entry("t", expires="2001-09-09T01:46:41Z")), clock=lambda: now[0])
    assert await auth.identify("bearer", "t") is not None
    now[0] += 1
    assert await auth.identify("bearer", "t") is None


async def test_a_token_that_was_taken_out_holds_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_RELOAD_SECONDS", 0.0)
    path = written(tmp_path, entry("t-1"), entry("t-2", "bob"))
    auth = TokensFile(path)
    assert await auth.identify("bearer", "t-1") is not None
    path.write_text("[[token]]\nbroken")
    assert await auth.identify("bearer", "t-1") is not None
    path.write_text(entry("t-2", "bob"))
    assert await auth.identify("bearer", "t-1") is None
    assert await auth.identify("bearer", "t-2") is not None


def effects(*names: str) -> SafetyData:
    return SafetyData(requires_user_confirmation=True, side_effects=names)


@pytest.mark.req("SEC-24")
def test_waivers_come_with_the_credential(tmp_path: Path) -> None:
    waives, plain = entry("t", auto_confirm_effects='["network"]'), entry("u")
    past = entry("v", auto_confirm_effects='["network", "filesystem"]', expires="2020-01-01T00:00:00Z")
    auth = TokensFile(written(tmp_path, waives, plain, past))
    batch, agent, expired = auth._tokens  # three tokens of ann
    assert approval_waiver(batch.identity, effects("network")) is not None
    assert approval_waiver(batch.identity, effects("network", "filesystem")) is None
    assert approval_waiver(agent.identity, effects("network")) is None
    assert approval_waiver(auth.current(agent.identity), effects("network")) is None
    assert approval_waiver(auth.current(expired.identity), effects("network")) is None
    for approvers in ({"four_eyes": True}, {"approver_roles": ("treasurer",)}):
        assert approval_waiver(batch.identity, dataclasses.replace(effects("network"), **approvers)) is None


async def test_an_identity_has_what_its_token_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_RELOAD_SECONDS", 0.0)
    now = [1_000_000_000.0]
    first = entry("t-1", permissions='["look"]', trust='"staff"')
    path = written(tmp_path, first, entry("t-2", permissions='["touch"]', expires="2001-09-09T01:46:41Z"))
    file = TokensFile(path, clock=lambda: now[0])
    auth = AuthConfig(file, tokens=file)
    ann, also_ann = await file.identify("bearer", "t-1"), await file.identify("bearer", "t-2")
    assert ann is not None
    assert also_ann is not None
    assert (auth.current(ann), auth.current(also_ann)) == (ann, also_ann)
    now[0] += 1
    assert auth.current(also_ann).revoked, "the other token of ann does not help"
    path.write_text(entry("t-1", permissions='["look", "new"]'))
    assert auth.current(ann) == ann._replace(permissions=frozenset({"look", "new"}), trust="user")
    path.write_text(entry("t-1", "bob", permissions='["look"]'))
    assert auth.current(ann).revoked, "the token is of another identity now"
    path.write_text(entry("t-3"))
    assert auth.current(ann) == ann._replace(permissions=frozenset(), trust="revoked")
    assert AuthConfig.of(path, None).current(ann).revoked, "also after a restart"
    assert AuthConfig().current(ann).revoked, "a server without the file does not know the token"
    assert auth.current(LOCAL) == LOCAL, "standard streams have no credential"
    assert auth.current(ANONYMOUS).revoked, "a credential is required"
    assert AuthConfig().current(ANONYMOUS) == ANONYMOUS


async def test_an_access_token_has_its_rights_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = await checker().identify("bearer", token(scope="pay"))
    assert identity is not None
    assert identity.expires_at is not None
    monkeypatch.setattr("time.time", lambda: identity.expires_at - 1)
    assert AuthConfig().current(identity) == identity
    monkeypatch.setattr("time.time", lambda: identity.expires_at)
    assert AuthConfig().current(identity).revoked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[token]]\nsha256 = 'x'\nidentity = 'a'", "64 hexadecimal"),
        (entry("t", "anonymous"), "identity"),
        (entry("t", "local"), "identity"),
        (entry("t", trust="'local'"), "trust"),
        (entry("t", trust="'revoked'"), "trust"),
        (entry("t", scheme="'basic'"), "scheme"),
        (entry("t", text="'t'"), "unknown field `text`"),
        (entry("t", permissions="'all'"), "array.*permissions"),
        (entry("t", auto_confirm_effects="['everything']"), "not an effect"),
        (entry("t", confirmation_secret="'ab'"), "confirmation_secret"),
        (entry("t", expires="'soon'"), "expires"),
        (entry("t") + entry("t", "bob"), "twice"),
        ("other = 1", "unknown field `other`"),
        ("[[", "not TOML"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TokensError, match=said):
        TokensFile(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TokensError, match="cannot be read"):
        TokensFile(tmp_path / "nothing.toml")


# --- access tokens ---------------------------------------------------------------------------------------------------

ISSUER, AUDIENCE = "https://login.example", "https://tools.example/pack"
RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(65_537, 2_048)


def keys(**kept: Any) -> bytes:
    made = []
    for kid, key in kept.items():
        algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        made.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
    return json.dumps({"keys": made}).encode()


def settings(**more: Any) -> JwtSettings:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": f"{ISSUER}/keys", "token_url": f"{ISSUER}/token"}
    return JwtSettings(**{**given, **more})


def claims(**more: Any) -> dict[str, Any]:
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 600, "scope": "look touch", **more}
    return {name: value for name, value in found.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "a", typ: str = "at+jwt", **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers={"kid": kid, "typ": typ} if kid else {"typ": typ})


def checker(*, taken: Container[str] = (), clock: Callable[[], float] = time.time, **more: Any) -> JwtAuth:
    return JwtAuth(settings(**more), fetch=lambda _: keys(a=RSA, b=EC), reserved_names=taken, clock=clock)


@pytest.mark.req("SEC-09", "SEC-11")
async def test_access_tokens_of_the_issuer_for_this_resource_hold() -> None:
    auth = checker()
    assert (auth.required, auth.token_url) == (True, f"{ISSUER}/token")
    assert "oauth2" in auth.schemes
    ann = await auth.identify("bearer", token())
    also_ann = await auth.identify("oauth2", token(EC, "ES256", "b", scope=None))
    assert ann is not None
    assert also_ann is not None
    assert ann[:3] == ("ann", frozenset({"look", "touch"}), "user")
    assert also_ann[:3] == ("ann", frozenset(), "user")
    assert await auth.identify("bearer", token(aud=["https://other.example", AUDIENCE])) is not None
    with_roles = await checker(permissions="roles").identify("bearer", token(roles=["x"]))
    assert with_roles is not None
    assert with_roles[:3] == ("ann", frozenset({"x"}), "user")
    assert await auth.identify("api_key", token()) is None


PUBLIC = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _hs256_with_the_public_key() -> str:
    import base64
    import hmac

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    said = part(b'{"alg":"HS256","kid":"a"}') + b"." + part(json.dumps(claims()).encode())
    return (said + b"." + part(hmac.digest(PUBLIC, said, "sha256"))).decode()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda: token(aud="https://other.example"), id="for somebody else"),
        pytest.param(lambda: token(aud=AUDIENCE + "/"), id="for nearly us"),
        pytest.param(lambda: token(aud=None), id="for nobody"),
        pytest.param(lambda: token(iss="https://evil.example"), id="of somebody else"),
        pytest.param(lambda: token(iss=None), id="of nobody"),
        pytest.param(lambda: token(exp=time.time() - 60), id="expired"),
        pytest.param(lambda: token(exp=None), id="for ever"),
        pytest.param(lambda: token(nbf=time.time() + 600), id="not yet"),
        pytest.param(lambda: token(sub=None), id="of no subject"),
        pytest.param(lambda: token(sub="local"), id="of a subject that is ours"),
        pytest.param(lambda: token(sub="line\nbreak"), id="of a subject with a line break"),
        pytest.param(lambda: token(sub="ann\u200b"), id="of a subject that looks like another"),
        pytest.param(lambda: token(sub="ann\u009b1m"), id="of a subject with a control character"),
        pytest.param(lambda: token(scope={"a": 1}), id="with strange permissions"),
        pytest.param(lambda: token(STRANGER), id="signed by a stranger"),
        pytest.param(lambda: token(STRANGER, kid="z"), id="with an unknown key"),
        pytest.param(lambda: token(kid=None), id="with no key"),
        pytest.param(lambda: token(algorithm="RS512"), id="by another algorithm"),
        pytest.param(lambda: token(typ="refresh+jwt"), id="to refresh"),
        pytest.param(lambda: jwt.encode(claims(), "", "none"), id="unsigned"),
        pytest.param(_hs256_with_the_public_key, id="signed with what is public"),
        pytest.param(lambda: token()[:-4] + "AAAA", id="changed"),
        pytest.param(lambda: "a.b.c", id="nonsense"),
        pytest.param(lambda: "opaque", id="opaque"),
    ],
)
async def test_whatever_else_does_not_hold(bad: Callable[[], str]) -> None:
    assert await checker().identify("bearer", bad()) is None


async def test_a_token_that_held_is_looked_at_again_when_it_expires() -> None:
    now = [time.time()]
    auth, good = checker(clock=lambda: now[0]), token()
    assert await auth.identify("bearer", good) is not None
    now[0] += 631
    assert await auth.identify("bearer", good) is None


async def test_keys_are_fetched_again_but_not_for_every_stranger() -> None:
    now, fetched, current = [1_000_000.0], [], [keys(a=RSA)]

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return current[0]

    auth = JwtAuth(settings(), fetch=fetch, clock=lambda: now[0])
    assert await auth.identify("bearer", token(exp=now[0] + 9_999)) is not None
    current[0] = keys(b=EC)
    for _ in range(5):
        assert await auth.identify("bearer", token(EC, "ES256", "b", exp=now[0] + 9_999)) is None
    assert len(fetched) == 1
    now[0] += 31
    assert await auth.identify("bearer", token(EC, "ES256", "b", exp=now[0] + 9_999)) is not None
    assert len(fetched) == 2
    now[0] += 301  # the key was withdrawn
    assert await auth.identify("bearer", token(exp=now[0] + 9_999)) is None


async def test_keys_of_unknown_kinds_leave_the_others_as_they_are() -> None:
    strange = [
        {"kty": "QQ", "kid": "q"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "e"},
        {"kty": "RSA"},
    ]
    listed = json.dumps({"keys": [*strange, *json.loads(keys(a=RSA))["keys"], *strange]}).encode()
    auth = JwtAuth(settings(), fetch=lambda _: listed)
    assert await auth.identify("bearer", token()) is not None
    assert await auth.identify("bearer", token(kid="q")) is None


async def test_strangers_keep_nobody_waiting_while_keys_are_fetched_for_them() -> None:
    now, fetching, answered = [1_000_000.0], threading.Event(), threading.Event()

    def fetch(_: str) -> bytes:
        if now[0] > 1_000_000.0:
            fetching.set()
            assert answered.wait(PATIENCE)
        return keys(a=RSA, b=EC) if fetching.is_set() else keys(a=RSA)

    auth = JwtAuth(settings(), fetch=fetch, clock=lambda: now[0])
    assert await auth.identify("bearer", token(exp=now[0] + 9_999)) is not None
    now[0] += 31
    try:
        strangers = [
            asyncio.create_task(auth.identify("bearer", token(STRANGER, kid=f"s{i}", exp=now[0] + 9_999)))
            for i in range(100)  # more than there are threads
        ]
        new = asyncio.create_task(auth.identify("bearer", token(EC, "ES256", "b", exp=now[0] + 9_999)))
        assert await asyncio.to_thread(fetching.wait, PATIENCE)
        async with asyncio.timeout(PATIENCE / 2):
            assert await auth.identify("bearer", token(sub="bob", exp=now[0] + 9_999)) is not None
        assert not new.done()
    finally:
        answered.set()
    assert await asyncio.gather(*strangers) == [None] * 100
    assert await new is not None, "whoever has a token of a new key waits for it"


async def test_a_known_key_holds_at_once_while_keys_are_fetched_again() -> None:
    now, fetching, answered = [1_000_000.0], threading.Event(), threading.Event()

    def fetch(_: str) -> bytes:
        if now[0] == 1_000_000.0:
            return keys(a=RSA)
        fetching.set()
        assert answered.wait(PATIENCE)
        return keys(b=EC)  # the other one was withdrawn

    auth, good = JwtAuth(settings(), fetch=fetch, clock=lambda: now[0]), token(exp=1_009_999)
    assert await auth.identify("bearer", good) is not None
    now[0] += 301
    try:
        async with asyncio.timeout(PATIENCE / 2):
            assert await auth.identify("bearer", good) is not None
        assert await asyncio.to_thread(fetching.wait, PATIENCE)
    finally:
        answered.set()
    async with asyncio.timeout(PATIENCE):
        while await auth.identify("bearer", good) is not None:
            await asyncio.sleep(0.01)


async def test_keys_that_nobody_looked_at_for_long_are_fetched_first() -> None:
    now, current = [1_000_000.0], [keys(a=RSA)]
    auth = JwtAuth(settings(), fetch=lambda _: current[0], clock=lambda: now[0])
    assert await auth.identify("bearer", token(exp=now[0] + 9_999)) is not None
    current[0] = keys(b=EC)
    now[0] += 3_601
    assert await auth.identify("bearer", token(exp=now[0] + 9_999)) is None


async def test_keys_that_cannot_be_fetched_let_nobody_in() -> None:
    for answer in (b"{", b"[]", b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "a"}]}', b'{"keys": 3}'):
        auth = JwtAuth(settings(), fetch=lambda _, answer=answer: answer)  # type: ignore[misc]
        assert await auth.identify("bearer", token()) is None


@pytest.mark.parametrize(
    "more",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ()},
        {"keys": "http://login.example/keys"},
        {"issuer": "login.example"},
        {"token_url": "file:///etc/passwd"},
    ],
)
def test_settings_that_would_not_be_safe(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="of access tokens"):
        settings(**more)


@pytest.mark.req("SEC-11", "TRANS-17")
async def test_a_resource_server_over_http(tmp_path: Path) -> None:
    file = TokensFile(written(tmp_path, entry("t-1", "bob")))
    jwts = checker(taken=file)
    async with house(auth=CombinedAuth([file, jwts]), metadata=settings().metadata) as h:
        auth = (await h.http.get("/.well-known/manglecp/manifest.json")).json()["payload"]["auth"]
        assert auth == {"required": True, "schemes": ["bearer", "oauth2"], "token_url": f"{ISSUER}/token"}
        about = await h.http.get("/.well-known/oauth-protected-resource/pack")
        assert about.json()["resource"] == AUDIENCE
        assert about.json()["authorization_servers"] == [ISSUER]
        for good in ("t-1", token()):
            headers = {**JSON, "authorization": f"Bearer {good}"}
            assert (await h.http.post("/evaluate", content=encoded(intent()), headers=headers)).status_code == 200
        for bad in (token(aud="https://other.example"), token(sub="bob"), "t-2"):
            headers = {**JSON, "authorization": f"Bearer {bad}"}
            answer = await h.http.post("/evaluate", content=encoded(intent()), headers=headers)
            assert (answer.status_code, answer.json()["payload"]["code"]) == (401, "auth_invalid")
            assert "/.well-known/oauth-protected-resource/pack" in answer.headers["www-authenticate"]
        assert [one.identity for one in h.desk.handled if one.code is None] == ["bob", "ann"]
