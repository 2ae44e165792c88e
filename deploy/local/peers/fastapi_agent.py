"""A text service in FastAPI: JSON answers, server-sent events, NDJSON. It knows nothing of Agent-Reach.

Usage: fastapi_agent.py [port]. Says {"port": …} in one line when it serves.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

app = FastAPI()
gone = []  # streams whose reader left before the end


class Question(BaseModel):
    text: str
    words: int = 3
    pause_ms: int = 0


@app.post("/sentiment")
async def sentiment(question: Question):
    if question.text == "teapot":
        raise HTTPException(418, {"kind": "teapot"})
    if question.text == "boom":
        raise RuntimeError("a bug in the text service")
    return {"label": "positive" if "good" in question.text else "neutral", "text": question.text, "score": 0.75}


@app.post("/slow")
async def slow(question: Question):
    await asyncio.sleep(question.pause_ms / 1000)
    return {"text": question.text}


@app.post("/headers")
async def headers(request: Request):
    return dict(request.headers)


async def words(question: Question, shape):
    try:
        for number in range(question.words):
            yield shape({"n": number, "word": f"{question.text}-{number}"})
            await asyncio.sleep(question.pause_ms / 1000)
    except asyncio.CancelledError:
        gone.append(question.text)
        raise


@app.post("/generate/sse")
async def generate_sse(question: Question):
    return StreamingResponse(words(question, lambda word: f"event: word\ndata: {json.dumps(word)}\n\n"), media_type="text/event-stream")


@app.post("/generate/ndjson")
async def generate_ndjson(question: Question):
    return StreamingResponse(words(question, lambda word: json.dumps(word) + "\n"), media_type="application/x-ndjson")


@app.post("/reply")
async def reply(question: Question):
    async def spoken():
        for number, word in enumerate(question.text.split()):
            if number:
                await asyncio.sleep(question.pause_ms / 1000)
            yield f"event: word\ndata: {json.dumps({'n': number, 'word': word})}\n\n"

    return StreamingResponse(spoken(), media_type="text/event-stream")


@app.get("/gone")
async def left():
    return gone


listening = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
