import pytest

from ddconsole.link.host_spec import HostSpec, parse_host
from ddconsole.link.stages import StageError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("ct200", ("ct200", None, None)),
        ("root@ct200", ("ct200", "root", None)),
        ("me@10.0.0.7:2222", ("10.0.0.7", "me", 2222)),
        ("gpu-1.lab.example:22", ("gpu-1.lab.example", None, 22)),
        ("me@[fe80::1]:22", ("fe80::1", "me", 22)),
        ("[::1]", ("::1", None, None)),
    ],
)
def test_hosts_are_taken_apart(text: str, spec: tuple[str, str | None, int | None]) -> None:
    assert parse_host(text) == HostSpec(text, *spec)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a$(id)", 'illegal character "$" at 2'),
        ("-oProxyCommand=touch /tmp/x", 'illegal character "="'),
        ("-v", '"-v" is no host name'),
        ("host\nname", 'illegal character "\n" at 5'),
        ("-x@host", '"-x" is no user name'),
        ("host:0", '"0" is no port'),
        ("host:70000", '"70000" is no port'),
        ("host:", '"" is no port'),
        ("@host", '"" is no user name'),
        ("", '"" is no host name'),
        ("h" * 300, "300 characters"),
        ("::1", "is no host name"),
    ],
)
def test_what_has_no_place_in_a_host_is_refused_before_any_connection(text: str, what: str) -> None:
    with pytest.raises(StageError) as refused:
        parse_host(text)
    assert refused.value.final
    assert "E101" in refused.value.text
    assert what in refused.value.text
