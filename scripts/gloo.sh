# Builds bin/libmt_gloo.so, which carries bytes between hosts. Needs a C++17
# compiler and Gloo's headers; as root they come through apt, else the command is
# said. monotron is built and runs without it, over plain TCP.
set -u
cd "$(dirname "$0")/.." || exit 1
CXX=${CXX:-g++}
ready() { command -v "$CXX" >/dev/null && [ -e /usr/include/gloo/context.h ]; }

if ! ready && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Gloo (libgloo-dev) and g++ ..."
  export DEBIAN_FRONTEND=noninteractive
  install() { apt-get install -y -qq --no-install-recommends libgloo-dev g++ >/dev/null 2>&1 </dev/null; }
  install || { apt-get update -qq >/dev/null 2>&1 </dev/null; install; }
fi
if ! ready; then
  echo "Gloo cannot be built here; processes on several hosts talk over plain TCP. To change that: sudo apt-get install -y libgloo-dev g++ && make gloo"
  exit 1
fi
mkdir -p bin
# A second name, then a rename: a run may have the library open.
"$CXX" -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra csrc/comm/gloo/gloo.cc -lgloo -o bin/.libmt_gloo.so.new &&
  mv bin/.libmt_gloo.so.new bin/libmt_gloo.so && echo "bin/libmt_gloo.so built"
