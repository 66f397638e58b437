"""The simulated server's HTTP: SGLang's paths, bodies and streams."""

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from ddconsole.rehearsal import reports
from ddconsole.rehearsal.chunks import (
    ChatChunks,
    GenerateChunks,
    Telling,
    TextChunks,
    bad_request,
    finish_reason,
    message_text,
    meta_info,
    speculation,
    usage,
    whole_chat,
    whole_text,
)
from ddconsole.rehearsal.output import Wish, count_tokens, token_ids
from ddconsole.rehearsal.service import Service
from ddconsole.rehearsal.streams import Stream

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEALTH_SECONDS = 1.0
"""A healthy answer takes this long: SGLang polls for the generated token once a second."""
HEALTH_TIMEOUT = 20.0
_OPEN_PATHS = frozenset({"/health", "/health_generate", "/metrics"})
_DEPRECATED = {
    "/get_model_info": "/model_info",
    "/get_server_info": "/server_info",
    "/get_load": "/v1/loads",
}


class RefusedError(Exception):
    """A request that the server answers with an error body."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body = body


class Api:
    """The paths. Once `hang` is set no request gets an answer any more.

    Args:
        service: the engine.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.kill: Callable[[str], None] = _nothing_to_kill
        """Called with `scheduler` or `detokenizer` where a fault wants it dead."""
        self.hang = False
        self.draining = False
        self._open = 0
        self.idle = asyncio.Event()
        """No answer is being written."""
        self.idle.set()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._around], client_max_size=256 * 1024**2)
        app.on_response_prepare.append(self._log_access)
        both: dict[str, Handler] = {"/flush_cache": self._flush, "/health": self._health}
        both["/health_generate"] = self._health
        for path, handler in both.items():
            app.router.add_route("*", path, handler)
        told: dict[str, Callable[[Service], Any]] = {
            "/model_info": reports.model_info,
            "/get_model_info": reports.model_info,
            "/server_info": reports.server_info,
            "/get_server_info": reports.server_info,
            "/v1/models": reports.models,
            "/v1/loads": reports.loads,
            "/get_load": _old_loads,
        }
        for path, tell in told.items():
            app.router.add_get(path, self._telling(tell), allow_head=False)
        if self._service.arguments.options.enable_metrics:
            app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        return app

    # --- around every request ----------------------------------------------------------------------------------

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.hang:
            await asyncio.Event().wait()
        key = self._service.arguments.options.api_key
        if key and request.path not in _OPEN_PATHS and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.path in _DEPRECATED:
            self._service.log.line(
                f"Endpoint '{request.path}' is deprecated and will be removed in a future version. "
                f"Please use '{_DEPRECATED[request.path]}' instead."
            )
        self._open += 1
        self.idle.clear()
        try:
            return await handler(request)
        except RefusedError as refused:
            return web.json_response(refused.body, status=400)
        except web.HTTPNotFound:
            return web.json_response({"detail": "Not Found"}, status=404)
        except web.HTTPMethodNotAllowed:
            return web.json_response({"detail": "Method Not Allowed"}, status=405)
        finally:
            self._open -= 1
            if not self._open:
                self.idle.set()

    async def _log_access(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "uvicorn"
        response.headers["X-Simulated"] = "ddconsole rehearsal"
        peer = request.transport.get_extra_info("peername") if request.transport else None
        address = f"{peer[0]}:{peer[1]}" if peer else "-"
        reason = web.Response(status=response.status).reason
        self._service.log.access(
            f'{address} - "{request.method} {request.path_qs} HTTP/1.1" {response.status} {reason}'
        )

    # --- plain answers -----------------------------------------------------------------------------------------

    def _telling(self, tell: Callable[[Service], Any]) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(tell(self._service))

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        body = reports.metrics(self._service).encode()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _flush(self, _: web.Request) -> web.Response:
        flushed = self._service.flush_cache()
        text = (
            f"{'Cache flushed.' if flushed else 'Flush cache failed.'}\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        return web.Response(body=text.encode(), status=200 if flushed else 400)

    async def _abort(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        if body.get("abort_all"):
            self._service.abort(None)
        elif body.get("rid"):
            self._service.abort(str(body["rid"]))
        return web.Response()

    async def _health(self, request: web.Request) -> web.Response:
        """It generates a token, and so takes a second and leaves a line in the log."""
        service = self._service
        if service.status == "Starting":
            return web.Response(status=503)
        if self.draining:
            service.log.line("Health check request received during shutdown. Returning 503.")
            return web.Response(status=503)
        quick = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() in {"0", "false"}
        if quick and request.path == "/health":
            return web.Response()
        if self._is_stuck():
            return await self._unhealthy()
        if not service.batch.size:
            service.probe_line()
        await service.clock.sleep(HEALTH_SECONDS)
        return await self._unhealthy() if self._is_stuck() else web.Response()

    def _is_stuck(self) -> bool:
        return self._service.batch.frozen or self._service.batch.silent

    async def _unhealthy(self) -> web.Response:
        await self._service.clock.sleep(HEALTH_TIMEOUT)
        self._service.health_failed = True
        self._service.log.line(
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            "tic start time: 00:00:00. last_heartbeat time: 00:00:00"
        )
        return web.Response(status=503)

    # --- generating --------------------------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RefusedError(_missing("messages"))
        prompt = message_text(messages)
        wish = self._wish(body, prompt, body.get("max_completion_tokens") or body.get("max_tokens"))
        telling = self._told(body, self._reasoning_tokens(body, wish))
        rid, model, created = _name(body, self._service)
        if body.get("stream"):
            return await self._stream(request, ChatChunks(rid, created, model, telling), wish, rid)
        head = {"id": rid, "created": created, "model": model}
        return await self._whole(
            wish, rid, lambda output, reason, told: whole_chat(head, output, reason, told), telling
        )

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise RefusedError(_missing("prompt"))
        wish = self._wish(body, prompt, body.get("max_tokens") or 16)
        telling = self._told(body, 0)
        rid, model, created = _name(body, self._service)
        if body.get("stream"):
            return await self._stream(request, TextChunks(rid, created, model, telling), wish, rid)
        head = {"id": rid, "created": created, "model": model}
        return await self._whole(
            wish, rid, lambda output, reason, told: whole_text(head, output, reason, told), telling
        )

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        text = body.get("text")
        if text is None and isinstance(body.get("input_ids"), list):
            text = " ".join(f"{token:03d}" for token in body["input_ids"])
        if not isinstance(text, str):
            raise RefusedError({"error": {"message": "Either text, input_ids or input_embeds should be provided."}})
        sampling = body.get("sampling_params") or {}
        temperature = sampling.get("temperature", 1.0)
        if temperature < 0:
            message = f"temperature must be a non-negative finite number, got {temperature}."
            raise RefusedError({"error": {"message": message}})
        renamed = {
            **sampling,
            "min_tokens": sampling.get("min_new_tokens", 0),
            "seed": sampling.get("sampling_seed"),
        }
        wish = self._wish(renamed, text, sampling.get("max_new_tokens") or 128)
        rid = str(body.get("rid") or uuid.uuid4().hex)
        if body.get("stream"):
            incremental = bool(self._service.arguments.options.incremental_streaming_output)
            return await self._stream(request, GenerateChunks(rid, incremental), wish, rid)
        return await self._whole_generate(wish, rid)

    async def _whole_generate(self, wish: Wish, rid: str) -> web.Response:
        sequence = self._service.submit(wish, rid)
        await Stream(self._service, sequence, self.kill).until_end()
        tokens = sequence.output.tokens[: sequence.tokens]
        reason = finish_reason(sequence.finish or "abort", sequence.tokens)
        meta = meta_info(rid, reason, sequence.prompt_tokens, sequence.tokens, sequence.cached_tokens)
        meta["e2e_latency"] = sequence.ended - sequence.arrived
        if self._service.arguments.method.speculative:
            meta |= speculation(sequence.output, sequence.steps, sequence.tokens, self._service.arguments.method)
        return web.json_response({"text": "".join(tokens), "output_ids": token_ids(tokens), "meta_info": meta})

    async def _whole(
        self, wish: Wish, rid: str, make: Callable[[Any, str, dict[str, Any]], dict[str, Any]], telling: Telling
    ) -> web.Response:
        sequence = self._service.submit(wish, rid)
        await Stream(self._service, sequence, self.kill).until_end()
        told = usage(sequence.prompt_tokens, sequence.tokens, sequence.cached_tokens, telling)
        answer = make(sequence.output, sequence.finish or "abort", told)
        if telling.speculation and self._service.arguments.method.speculative:
            details = speculation(sequence.output, sequence.steps, sequence.tokens, self._service.arguments.method)
            answer["sglext"] = {"spec_tokens_details": details}
        return web.json_response(answer)

    async def _stream(
        self, request: web.Request, chunks: ChatChunks | TextChunks | GenerateChunks, wish: Wish, rid: str
    ) -> web.StreamResponse:
        fault = self._service.next_fault()
        sequence = self._service.submit(wish, rid)
        return await Stream(self._service, sequence, self.kill, fault).answer(request, chunks)

    # --- within ------------------------------------------------------------------------------------------------

    async def _body(self, request: web.Request) -> dict[str, Any]:
        text = await request.text()
        try:
            value = json.loads(text or "{}")
        except ValueError as problem:
            message = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error: {problem}'}}"
            raise RefusedError(bad_request(message, "Bad Request")) from None
        if not isinstance(value, dict):
            raise RefusedError(bad_request("1 validation error: not an object", "Bad Request"))
        return value

    def _wish(self, body: dict[str, Any], prompt: str, most: Any) -> Wish:
        limit = self._service.arguments.context_tokens
        asked = count_tokens(prompt)
        if asked >= limit:
            message = f"The input ({asked} tokens) is longer than the model's context length ({limit} tokens)."
            raise RefusedError(bad_request(message))
        wanted = int(most) if most else limit - asked
        if asked + wanted > limit:
            raise RefusedError(
                bad_request(
                    f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                    f"You requested a total of {asked + wanted} tokens: {asked} tokens from the input messages and "
                    f"{wanted} tokens for the completion. Please reduce the number of tokens in the input messages or "
                    "the completion to fit within the limit."
                )
            )
        seed = body.get("seed")
        return Wish(
            prompt=prompt,
            max_tokens=wanted,
            min_tokens=int(body.get("min_tokens") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            temperature=float(body.get("temperature") or 0.0),
            seed=None if seed is None else int(seed),
        )

    def _told(self, body: dict[str, Any], reasoning: int) -> Telling:
        options = self._service.arguments.options
        asked = body.get("stream_options") or {}
        return Telling(
            usage=bool(asked.get("include_usage", options.stream_response_default_include_usage)),
            continuous_usage=bool(asked.get("continuous_usage_stats")),
            speculation=bool(body.get("return_spec_tokens_details")),
            cached=bool(options.enable_cache_report),
            reasoning_tokens=reasoning,
        )

    def _reasoning_tokens(self, body: dict[str, Any], wish: Wish) -> int:
        """Where the server splits reasoning off and the client does not switch it off, two fifths of the length."""
        thinking = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
        return wish.max_tokens * 2 // 5 if thinking and self._service.arguments.options.reasoning_parser else 0


def _name(body: dict[str, Any], service: Service) -> tuple[str, str, int]:
    """Request id, model name as asked (SGLang takes any), time of creation."""
    rid = str(body.get("rid") or uuid.uuid4().hex)
    return rid, str(body.get("model") or service.arguments.served_name), int(service.clock.now())


def _nothing_to_kill(which: str) -> None:
    """Before the processes are there."""


def _missing(name: str) -> dict[str, Any]:
    message = f"1 validation error:\n  {{'type': 'missing', 'loc': ('body', '{name}'), 'msg': 'Field required'}}"
    return bad_request(message, "Bad Request")


def _old_loads(service: Service) -> list[dict[str, Any]]:
    load = reports.loads(service)["loads"][0]
    return [
        {
            "dp_rank": 0,
            "num_reqs": load["num_running_reqs"] + load["num_waiting_reqs"],
            "num_waiting_reqs": load["num_waiting_reqs"],
            "num_tokens": load["num_used_tokens"],
        }
    ]
