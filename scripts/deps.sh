# Puts oneDNN on this machine where it is missing: as root through apt, else it
# says the command. monotron runs without it, so this never fails.
installed() { ldconfig -p 2>/dev/null | grep -Eq 'libdnnl\.so\.[23] '; }

PATH=$PATH:/sbin:/usr/sbin
installed && exit 0
if ! command -v apt-get >/dev/null; then
  echo "oneDNN (libdnnl.so.2 or .3) is not installed. All works without it, slower: 'bin/monotron doctor' says how much."
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "oneDNN is not installed. All works without it, slower; to install it: sudo apt-get install -y libdnnl2"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -qq --no-install-recommends libdnnl2 >/dev/null 2>&1 </dev/null; }
echo "installing oneDNN (libdnnl2) ..."
install || { apt-get update -qq >/dev/null 2>&1 </dev/null; install; }
if installed; then
  echo "oneDNN installed"
else
  echo "oneDNN could not be installed; going on without. By hand: apt-get update && apt-get install -y libdnnl2"
fi
exit 0
