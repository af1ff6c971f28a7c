/* dlopen maps a library by its headers and trusts them: a file whose end is missing (a copy
 * that was cut short, a full disk) kills the process at the first page behind its end. */
#ifndef MT_CUTSHORT_H
#define MT_CUTSHORT_H

#include <stddef.h>

#ifdef __linux__
#include <elf.h>
#include <stdio.h>
#include <string.h>

static inline int mt_maps_beyond(FILE *f, const Elf64_Ehdr *e, long size) {
  for (int i = 0; i < e->e_phnum; i++) {
    Elf64_Phdr p;
    if (fseek(f, (long)(e->e_phoff + (Elf64_Off)i * e->e_phentsize), SEEK_SET) || fread(&p, sizeof p, 1, f) != 1) return 0;
    if (p.p_type == PT_LOAD && (p.p_offset > (Elf64_Off)size || p.p_filesz > (Elf64_Xword)size - p.p_offset)) return 1;
  }
  return 0;
}

/* Why the library at path must not be given to dlopen; NULL: dlopen says itself what it
 * thinks of the file. A name without a slash is the loader's to find. */
static inline const char *mt_cut_short(const char *path) {
  FILE *f = strchr(path, '/') ? fopen(path, "rb") : NULL;
  Elf64_Ehdr e;
  int cut = f && fread(&e, sizeof e, 1, f) == 1 && !memcmp(e.e_ident, ELFMAG, SELFMAG) && e.e_ident[EI_CLASS] == ELFCLASS64 &&
            e.e_phentsize == sizeof(Elf64_Phdr) && !fseek(f, 0, SEEK_END) && mt_maps_beyond(f, &e, ftell(f));
  if (f) fclose(f);
  return cut ? "the file is truncated: copy or build it again" : NULL;
}
#else
static inline const char *mt_cut_short(const char *path) { return path ? NULL : "no name"; }
#endif

#endif
