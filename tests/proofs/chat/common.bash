# Sourced by the proofs of chat templates: a Python with jinja2 3.1.6 ($python, made in .tools where the machine's has another),
# and our interpreter as a compiled test ($work/jinja.test).
python=${PYTHON:-python3}
if ! "$python" -c 'import jinja2; assert jinja2.__version__ == "3.1.6"' 2>/dev/null; then
  python=.tools/jinja/bin/python
  if [ ! -x $python ]; then
    python3 -m venv .tools/jinja
    .tools/jinja/bin/pip install -q --disable-pip-version-check jinja2==3.1.6 || { rm -rf .tools/jinja; echo "skipped: jinja2 3.1.6 could not be installed"; exit 0; }
  fi
fi
echo "$("$python" --version), jinja2 3.1.6"
$GO test -vet=off -c -o "$work/jinja.test" ./tokenizer/chat/jinja
