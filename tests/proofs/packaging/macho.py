"""macho.py FILE: which program for macOS this is: type, processor, least macOS, libraries, whether it is signed. Exits 1 where
it is not a signed program for arm64, or loads a library that macOS does not come with."""
import struct
import sys

data = open(sys.argv[1], 'rb').read()
magic, processor, _, kind, commands, _, _, _ = struct.unpack_from('<8I', data)
libraries, signed, least, at = [], False, '?', 32
for _ in range(commands):
    command, size = struct.unpack_from('<2I', data, at)
    if command in (0xC, 0x80000018):  # LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB
        name = at + struct.unpack_from('<I', data, at + 8)[0]
        libraries.append(data[name : data.index(b'\0', name)].decode())
    elif command == 0x1D:  # LC_CODE_SIGNATURE
        signed = True
    elif command == 0x32:  # LC_BUILD_VERSION
        version = struct.unpack_from('<I', data, at + 12)[0]
        least = f'{version >> 16}.{version >> 8 & 255}'
    at += size
good = magic == 0xFEEDFACF and processor == 0x0100000C and kind == 2
print(f'{len(data)} bytes, {"Mach-O program for arm64" if good else "not a Mach-O program for arm64"}, macOS {least} or later, {"signed" if signed else "not signed"}')
print('libraries:', *libraries)
foreign = [name for name in libraries if not name.startswith(('/usr/lib/', '/System/Library/'))]
sys.exit(not good or not signed or bool(foreign))
