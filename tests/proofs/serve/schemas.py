#!/usr/bin/env python3
"""schemas.py URL [COUNT [SEED]]: random JSON schemas asked of a server by the real openai package; every
text that ends must be valid by the real jsonschema package."""
import json
import random
import sys

import jsonschema
import openai

api = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
model = api.models.list().data[0].id
count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
drawn = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)


def draw(depth=0):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
    if depth < 3:
        kinds += ["object", "object", "array", "anyOf", "map", "types", "ref"]
    kind = drawn.choice(kinds)
    if kind == "string":
        low = drawn.randint(0, 2)
        return {"type": "string", "minLength": low, "maxLength": low + drawn.randint(0, 4)}
    if kind == "enum":
        return {"enum": drawn.sample(['a "b"', 1.5, None, True, {"k": [1]}, "é\n"], drawn.randint(1, 5))}
    if kind == "const":
        return {"const": {"x": ["<", 2]}}
    if kind == "object":
        properties = {f"p{i}": draw(depth + 1) for i in range(drawn.randint(0, 3))}
        required = [name for name in properties if drawn.random() < 0.5]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if kind == "array":
        low = drawn.randint(0, 2)
        return {"type": "array", "items": draw(depth + 1), "minItems": low, "maxItems": low + drawn.randint(0, 2)}
    if kind == "anyOf":
        return {"anyOf": [draw(depth + 1), draw(depth + 1)]}
    return {
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "types": {"type": ["string", "null"], "maxLength": 4},
        "ref": {"$ref": "#/$defs/leaf"},
    }.get(kind, {"type": kind})


ended = 0
for i in range(count):
    schema = dict(draw())
    schema["$defs"] = {"leaf": {"enum": ["leaf", 7]}}
    choice = api.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "x"}], temperature=1, seed=i, max_completion_tokens=44,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}},
    ).choices[0]
    if choice.finish_reason == "stop":
        jsonschema.validate(json.loads(choice.message.content), schema)
        ended += 1
print(f"{count} schemas, {ended} texts ended, all of them valid")
sys.exit(ended < count // 2)
