"""Conversations: what each turn's context holds, and where they end."""

from typing import TYPE_CHECKING

from load_runs import THREE_TURNS, four_tokens, run

from ddconsole.load.task import Script

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, MakeTask, Serve


async def test_replay_puts_the_scripted_answers_into_the_context(serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    records, _ = await run(make_task(server.url, "conversation", script=THREE_TURNS, requests=3))
    system = {"role": "system", "content": "You build."}
    user = [{"role": "user", "content": f"u{number}"} for number in (1, 2, 3)]
    assistant = [{"role": "assistant", "content": f"a{number}"} for number in (1, 2)]
    assert [body["messages"] for body in server.bodies] == [
        [system, user[0]],
        [system, user[0], assistant[0], user[1]],
        [system, user[0], assistant[0], user[1], assistant[1], user[2]],
    ]
    assert [(r.prompt, r.turn) for r in records] == [("build/one", 1), ("build/two", 2), ("build/three", 3)]


async def test_live_puts_the_models_own_answers_into_the_context_without_its_reasoning(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    async def think_and_say(exchange: "Exchange") -> None:
        await exchange.send(b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n')
        await exchange.send(b'data: {"choices":[{"delta":{"content":"said %d"}}]}\n\n' % exchange.number)
        await exchange.send_tokens(4)

    server = await serve(think_and_say)
    records, _ = await run(make_task(server.url, "conversation", script=THREE_TURNS, requests=3, turns="live"))
    assert [m["content"] for m in server.bodies[2]["messages"] if m["role"] == "assistant"] == [
        "said 1x x x x ",
        "said 2x x x x ",
    ]
    assert records[0].text == "hmsaid 1x x x x "


async def test_a_conversation_ends_at_the_turn_that_fails_and_the_next_one_is_played(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    async def second_is_short(exchange: "Exchange") -> None:
        await exchange.send_tokens(3 if exchange.number == 2 else 4)

    server = await serve(second_is_short)
    task = make_task(server.url, "conversation", script=THREE_TURNS, requests=3, repetitions=2)
    records, report = await run(task)
    assert [(r.repetition, r.turn, r.outcome.value) for r in records] == [
        (0, 1, "ok"),
        (0, 2, "short"),
        (1, 1, "ok"),
        (1, 2, "ok"),
        (1, 3, "ok"),
    ]
    assert report.notes == ("conversation 1 ended at turn 2 (two); 1 turns not sent", "requests not sent: 1 of 6")
    openings = [body["messages"][0]["content"] for body in server.bodies]
    assert openings == ["You build."] * 2 + ["[2] You build."] * 3


async def test_without_a_system_text_the_first_turn_is_made_distinct(serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    script = Script("plain", "", THREE_TURNS.turns[:2])
    await run(make_task(server.url, "conversation", script=script, concurrency=2, requests=2))
    assert sorted(body["messages"][0]["content"] for body in server.bodies) == ["[2] u1", "[2] u1", "u1", "u1"]
    assert max(server.running_at_begin) == 2
