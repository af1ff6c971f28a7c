#!/usr/bin/env python3
"""tools.py URL [COUNT [SEED]]: random tools called through the real openai package. Every call that is asked for by
tool_choice or strict has arguments that are valid by the real jsonschema package; streamed answers have the calls
of complete ones; calls and their results go back to the server as the package writes them."""
import json
import random
import sys

import jsonschema
import openai

api = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=300)
model = api.models.list().data[0].id
count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
drawn = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)


def value(depth=0):
    kinds = ["string", "integer", "boolean", "enum"] + (["object", "array"] if depth < 2 else [])
    kind = drawn.choice(kinds)
    return {
        "string": {"type": "string", "maxLength": drawn.randint(0, 4)},
        "enum": {"enum": drawn.sample(["celsius", "é", 'a "b"', 3, None], drawn.randint(1, 4))},
        "array": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "object": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False},
    }.get(kind, {"type": kind})


def tools():
    out = []
    for i in range(drawn.randint(1, 3)):
        properties = {f"p{k}": value() for k in range(drawn.randint(0, 3))}
        required = [name for name in properties if drawn.random() < 0.5]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        out.append({"type": "function", "function": {"name": f"tool_{i}", "description": "d", "parameters": parameters, "strict": drawn.random() < 0.5}})
    return out


def check(calls, offered):
    for call in calls:
        schema = next(t for t in offered if t["function"]["name"] == call.function.name)["function"]["parameters"]
        jsonschema.validate(json.loads(call.function.arguments), schema)


ended = 0
for i in range(count):
    offered = tools()
    choice = drawn.choice(["required", "auto", {"type": "function", "function": {"name": offered[-1]["function"]["name"]}}])
    ask = {"model": model, "messages": [{"role": "user", "content": "x"}], "tools": offered, "tool_choice": choice,
           "temperature": 1, "seed": i, "max_completion_tokens": 200, "parallel_tool_calls": drawn.random() < 0.5}
    answer = api.chat.completions.create(**ask).choices[0]
    calls = answer.message.tool_calls or []
    if choice == "auto" and not any(t["function"]["strict"] for t in offered):
        continue
    check(calls if answer.finish_reason == "tool_calls" else [], offered)
    if choice != "auto" and answer.finish_reason == "stop":
        sys.exit(f"an answer with tool_choice {choice} ended without calls")
    if answer.finish_reason != "tool_calls":
        continue
    ended += 1
    with api.chat.completions.stream(**ask) as stream:
        streamed = stream.get_final_completion().choices[0]
    if [(c.function.name, c.function.arguments) for c in streamed.message.tool_calls] != [(c.function.name, c.function.arguments) for c in calls]:
        sys.exit(f"streamed calls differ: {streamed} and {answer}")
    results = [{"role": "tool", "tool_call_id": c.id, "content": "7"} for c in calls]
    api.chat.completions.create(model=model, messages=ask["messages"] + [answer.message] + results, tools=offered, max_completion_tokens=1)
print(f"{count} requests, {ended} answers with complete calls, all of them valid, the same streamed")
sys.exit(ended < count // 4)
