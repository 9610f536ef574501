/* Places where a test may end a program as a power cut would: SANDSTORM_FAILPOINT=name makes the
 * process kill itself with SIGKILL when it comes to that place. Only builds with the CMake option
 * SANDSTORM_FAILPOINTS have them; elsewhere a failpoint is nothing at all. Any thread. */
#pragma once

#ifdef SANDSTORM_FAILPOINTS
void failpoint(const char *name);
#else
static inline void failpoint(const char *name)
{
    (void)name;
}
#endif
