import base64
import hashlib
import hmac
from pathlib import Path

import asyncssh

from ddconsole.link.known_hosts import KnownHosts


def public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


def hashed(name: str) -> str:
    salt = b"0123456789abcdef0123"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def test_the_place_of_each_key_of_a_host_is_known(tmp_path: Path) -> None:
    one, two, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    user, machine = tmp_path / "user", tmp_path / "machine"
    user.write_text(f"# mine\n\nother.example {public(other)}\n{hashed('[gpu]:2222')} {public(one)}\n")
    machine.write_text(f"not a line\n[gpu]:2222,alias {public(two)}\n")
    known = KnownHosts([user, tmp_path / "missing", machine])
    trusted, authorities, revoked = known("gpu", "10.0.0.1", 2222)
    assert {public(key) for key in trusted} == {public(one), public(two)}
    assert (authorities, revoked) == ([], [])
    assert {(place.file, place.line) for place in known.keys} == {(user, 4), (machine, 2)}


def test_a_host_without_a_line_has_no_keys(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "known").write_text(f"other.example {public(key)}\n")
    known = KnownHosts([tmp_path / "known"])
    assert known("gpu", "10.0.0.1", None) == ([], [], [])
    assert known.keys == ()


def test_authorities_and_revoked_keys_are_told_apart(tmp_path: Path) -> None:
    authority, revoked = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    (tmp_path / "known").write_text(f"@cert-authority *.lab {public(authority)}\n@revoked * {public(revoked)}\n")
    known = KnownHosts([tmp_path / "known"])
    trusted, authorities, refused = known("gpu.lab", "10.0.0.1", None)
    assert trusted == []
    assert [public(key) for key in authorities] == [public(authority)]
    assert [public(key) for key in refused] == [public(revoked)]
    assert [(place.line, public(place.key)) for place in known.revoked] == [(2, public(revoked))]
