/* Where in the file system our own control group is. Two files of /proc say it: which group, and
 * where that hierarchy is mounted. next: agent/cgroup_root.c makes our part of it. */
#include "agent/cgroup-internal.h"
#include "common/file.h"

#include <stdio.h>
#include <string.h>

#define FILE_MAX (1u << 20)

const struct cgroup_paths cgroup_machine = {
    .self = "/proc/self/cgroup",
    .mounts = "/proc/self/mountinfo",
    .systemd = "/run/systemd/system",
};

/* The line "0::/path" is version 2's, whatever else is mounted, see cgroups(7). */
static int find_group(char *text, const char **ret, struct err *err)
{
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (strncmp(line, "0::/", 4) == 0) {
            /* The group of a process outside of our cgroup namespace cannot be reached. */
            if (strncmp(line, "0::/..", 6) == 0)
                return err_set(err, ERR_UNAVAILABLE, "our control group is outside of our view");
            *ret = line + 3;
            return 0;
        }
    return err_set(err, ERR_UNAVAILABLE, "the kernel has no control groups of version 2 for us");
}

/* mountinfo has octal escapes for space, tab, newline and backslash. */
static void unescape(char *text)
{
    char *out = text;
    for (const char *in = text; *in; out++) {
        unsigned value;
        if (in[0] == '\\' && sscanf(in + 1, "%3o", &value) == 1) {
            *out = (char)value;
            in += 4;
        } else {
            *out = *in++;
        }
    }
    *out = '\0';
}

/* One line of proc(5)'s mountinfo: the part of the file system that is mounted, and where. */
static bool parse_mount(char *line, const char **ret_root, const char **ret_point)
{
    char *type = strstr(line, " - ");
    if (!type || strncmp(type, " - cgroup2 ", 11) != 0)
        return false;
    char *fields[5], *rest = line;
    for (size_t i = 0; i < ELEMENTS(fields); i++)
        if (!(fields[i] = strsep(&rest, " ")))
            return false;
    unescape(fields[3]);
    unescape(fields[4]);
    *ret_root = fields[3];
    *ret_point = fields[4];
    return true;
}

/* What is left of `group` below `root`, "" for root itself; NULL when it is not below. */
static const char *below(const char *group, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, root, length) != 0 || (group[length] != '/' && group[length] != '\0'))
        return NULL;
    return strcmp(group + length, "/") == 0 ? "" : group + length;
}

int cgroup_find_own(const struct cgroup_paths *paths, char ret[CGROUP_PATH_MAX], struct err *err)
{
    CLEANUP_FREE char *self = NULL, *mounts = NULL;
    const char *group, *root, *point;
    size_t size;
    if (file_read(paths->self, FILE_MAX, &self, &size, err) < 0 ||
        file_read(paths->mounts, FILE_MAX, &mounts, &size, err) < 0 ||
        find_group(self, &group, err) < 0)
        return -1;
    char *rest = mounts;
    for (char *line; (line = strsep(&rest, "\n"));) {
        const char *tail = parse_mount(line, &root, &point) ? below(group, root) : NULL;
        if (!tail)
            continue;
        if (snprintf(ret, CGROUP_PATH_MAX, "%s%s", point, tail) >= (int)CGROUP_PATH_MAX)
            return err_set(err, ERR_UNAVAILABLE, "the path of our control group is too long");
        return 0;
    }
    return err_set(err, ERR_UNAVAILABLE, "control groups of version 2 are not mounted");
}
