/* The files and directories that control groups are made of, see cgroups(7). Used by
 * agent/cgroup*.c; knows nothing of commands. */
#include "agent/cgroup-internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

ssize_t cgroup_read(int group, const char *name, char *out, size_t size)
{
    CLEANUP_FD int fd = openat(group, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, size - 1);
    if (n >= 0)
        out[n] = '\0';
    return n;
}

int cgroup_write(int group, const char *name, const char *value)
{
    CLEANUP_FD int fd = openat(group, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    return write(fd, value, strlen(value)) < 0 ? -1 : 0;
}

bool cgroup_read_key(int group, const char *name, const char *key, uint64_t *ret)
{
    char text[CGROUP_ATTRIBUTE_MAX];
    size_t length = strlen(key);
    if (cgroup_read(group, name, text, sizeof(text)) < 0)
        return false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            *ret = strtoull(line + length + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

bool cgroup_has_word(int group, const char *name, const char *word)
{
    char text[CGROUP_ATTRIBUTE_MAX], *rest = text;
    if (cgroup_read(group, name, text, sizeof(text)) < 0)
        return false;
    for (const char *item; (item = strsep(&rest, " \n"));)
        if (strcmp(item, word) == 0)
            return true;
    return false;
}

int cgroup_open_dir(int above, const char *name)
{
    return openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* fn for each directory in `group`. */
static void each_child(int group, void (*fn)(void *userdata, int group, const char *name),
                       void *userdata)
{
    CLEANUP_FD int fd = cgroup_open_dir(group, ".");
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return;
    (void)TAKE_FD(fd);
    const struct dirent *item;
    while ((item = readdir(dir)))
        if (item->d_type == DT_DIR && item->d_name[0] != '.')
            fn(userdata, group, item->d_name);
    (void)closedir(dir);
}

struct visit {
    void (*fn)(void *userdata, int group);
    void *userdata;
    unsigned depth;
};

static void visit_child(void *userdata, int above, const char *name)
{
    struct visit *visit = userdata;
    CLEANUP_FD int group = cgroup_open_dir(above, name);
    if (group < 0 || visit->depth == CGROUP_DEPTH_MAX)
        return;
    visit->fn(visit->userdata, group);
    visit->depth++;
    each_child(group, visit_child, visit);
    visit->depth--;
}

void cgroup_visit(int group, void (*fn)(void *userdata, int group), void *userdata)
{
    struct visit visit = { fn, userdata, 0 };
    fn(userdata, group);
    each_child(group, visit_child, &visit);
}

static void remove_child(void *userdata, int above, const char *name)
{
    unsigned *depth = userdata;
    if (unlinkat(above, name, AT_REMOVEDIR) == 0 || *depth == CGROUP_DEPTH_MAX)
        return;
    CLEANUP_FD int group = cgroup_open_dir(above, name);
    if (group < 0)
        return;
    (*depth)++;
    each_child(group, remove_child, depth);
    (*depth)--;
    (void)unlinkat(above, name, AT_REMOVEDIR);
}

int cgroup_remove(int above, const char *name)
{
    unsigned depth = 0;
    if (unlinkat(above, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == EBUSY)
        remove_child(&depth, above, name);
    if (faccessat(above, name, F_OK, 0) == 0) {
        errno = EBUSY;
        return -1;
    }
    return 0;
}
