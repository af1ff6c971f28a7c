/* NVIDIA's libraries outside the loader's search path: pip installs torch's into folders
 * of its own. */
#ifndef MT_TORCHLIBS_H
#define MT_TORCHLIBS_H

#include <glob.h>
#include <limits.h>

#include <cstdio>
#include <cstdlib>

/* The path of a file below site-packages/nvidia of the Python in use; "" where there is none. */
inline void mt_torch_library(char (&path)[PATH_MAX], const char *file) {
  const char *roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), "/usr/local", "/usr"};
  path[0] = 0;
  for (const char *root : roots) {
    char pattern[PATH_MAX];
    glob_t found = {};
    if (!root || snprintf(pattern, sizeof pattern, "%s/lib/python3*/*-packages/nvidia/%s", root, file) >= (int)sizeof pattern) continue;
    bool here = glob(pattern, 0, nullptr, &found) == 0 && found.gl_pathc > 0;
    if (here) snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    if (here) return;
  }
}

#endif
