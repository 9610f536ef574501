/* Names below .invalid as a test wants them, without a word to a name server: loaded into a daemon
 * by LD_PRELOAD. "*.loopback.invalid" is this machine; every other one does not exist, or, with a
 * file's path in SANDSTORM_TEST_RESOLVER, makes the agent's worker wait for good once that file was
 * made, as it would for name servers that do not answer. Used by
 * tests/integration/test_agent_offline.c.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKER "diagnosis" /* the name of its thread, agent/link.c */

static int ends_with(const char *text, const char *end)
{
    size_t size = text ? strlen(text) : 0;
    return size >= strlen(end) && strcmp(text + size - strlen(end), end) == 0;
}

static void hang(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)close(fd);
    for (;;)
        (void)pause();
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const char *path = getenv("SANDSTORM_TEST_RESOLVER");
    char thread[16] = "";
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!ends_with(node, ".invalid"))
        return real(node, service, hints, ret);
    if (ends_with(node, ".loopback.invalid"))
        return real("127.0.0.1", service, hints, ret);
    if (path && pthread_getname_np(pthread_self(), thread, sizeof(thread)) == 0 &&
        strcmp(thread, WORKER) == 0)
        hang(path);
    return EAI_NONAME;
}
