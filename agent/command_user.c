/* Who a command runs as. agent/command_spec.c asks, agent/policy.c judges, agent/spawn.c becomes
 * it. Everything is looked up before the process exists: the user database allocates and takes
 * locks. */
#include "agent/command_user.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RECORD_MAX (1u << 20) /* a group may have many members */

/* A name of nothing but digits is a number, as for systemd and su. (uid_t)-1 means "no change" to
 * the kernel, so it is nobody's. */
static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int parse_number(const char *kind, const char *text, uint32_t *ret, struct err *err)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value >= UINT32_MAX)
        return err_errno(err, EINVAL, "%s %.32s is out of range; the highest is %u", kind, text,
                         UINT32_MAX - 1);
    *ret = (uint32_t)value;
    return 0;
}

static int check_name(const char *kind, const char *name, struct err *err)
{
    if (strlen(name) >= COMMAND_USER_NAME_MAX)
        return err_errno(err, EINVAL, "the name of a %s is longer than %u bytes", kind,
                         COMMAND_USER_NAME_MAX - 1);
    if (*name == '-' || *name == '+')
        return err_errno(err, EINVAL, "\"%.32s\" is not the name or number of a %s", name, kind);
    return 0;
}

/* The database's functions want a buffer and say ERANGE when it is too small. Each call is by name,
 * or by number where name is NULL; the result points into the buffer. */
struct record {
    char *buffer;
    size_t size;
    struct passwd passwd;
    struct group group;
};

static int lookup_user(struct record *record, const char *name, uid_t uid, bool *ret_found)
{
    struct passwd *found = NULL;
    int r = name ? getpwnam_r(name, &record->passwd, record->buffer, record->size, &found)
                 : getpwuid_r(uid, &record->passwd, record->buffer, record->size, &found);
    *ret_found = found != NULL;
    return r;
}

static int lookup_group(struct record *record, const char *name, gid_t gid, bool *ret_found)
{
    struct group *found = NULL;
    int r = name ? getgrnam_r(name, &record->group, record->buffer, record->size, &found)
                 : getgrgid_r(gid, &record->group, record->buffer, record->size, &found);
    *ret_found = found != NULL;
    return r;
}

static int lookup(int (*fn)(struct record *, const char *, uint32_t, bool *), struct record *record,
                  const char *name, uint32_t number, bool *ret_found, struct err *err)
{
    for (size_t size = 1024; size <= RECORD_MAX; size *= 4) {
        char *buffer = realloc(record->buffer, size);
        if (!buffer)
            return err_nomem(err);
        record->buffer = buffer;
        record->size = size;
        int r = fn(record, name, number, ret_found);
        if (r == ERANGE)
            continue;
        /* Some modules say "not found" as an error, see getpwnam(3). */
        if (r == 0 || r == ENOENT || r == ESRCH || r == EBADF || r == EPERM)
            return 0;
        return err_errno(err, r, "the user database of this sandbox cannot be read");
    }
    return err_errno(err, ERANGE, "a record of the user database is larger than %u bytes",
                     RECORD_MAX);
}

static int copy(const char *text, const char *otherwise, char **ret, struct err *err)
{
    *ret = strdup(text && *text ? text : otherwise);
    return *ret ? 0 : err_nomem(err);
}

static int find_user(const char *user, bool has_group, struct record *record,
                     struct command_user *ret, struct err *err)
{
    bool found, by_number = !*user || is_number(user);
    uint32_t number = geteuid();
    if (*user && (check_name("user", user, err) < 0 ||
                  (by_number && parse_number("user", user, &number, err) < 0)))
        return -1;
    if (lookup(lookup_user, record, by_number ? NULL : user, number, &found, err) < 0)
        return -1;
    if (!found && !by_number)
        return err_errno(err, ENOENT, "there is no user \"%.64s\" in this sandbox", user);
    if (!found && *user && !has_group)
        return err_errno(err, ENOENT,
                         "user %u is not in the user database of this sandbox; name a group too",
                         number);
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", number);
    const struct passwd *entry = found ? &record->passwd : NULL;
    ret->uid = entry ? entry->pw_uid : number;
    ret->gid = entry ? entry->pw_gid : getegid();
    if (copy(entry ? entry->pw_name : text, text, &ret->name, err) < 0 ||
        copy(entry ? entry->pw_dir : NULL, "/", &ret->home, err) < 0 ||
        copy(entry ? entry->pw_shell : NULL, "/bin/sh", &ret->shell, err) < 0)
        return -1;
    return 0;
}

static int find_group(const char *group, struct record *record, gid_t *ret, struct err *err)
{
    bool found;
    uint32_t number = 0;
    if (check_name("group", group, err) < 0)
        return -1;
    if (is_number(group)) {
        if (parse_number("group", group, &number, err) < 0)
            return -1;
        *ret = number; /* as with chown(1): a number needs no entry */
        return 0;
    }
    if (lookup(lookup_group, record, group, 0, &found, err) < 0)
        return -1;
    if (!found)
        return err_errno(err, ENOENT, "there is no group \"%.64s\" in this sandbox", group);
    *ret = record->group.gr_gid;
    return 0;
}

static bool among(gid_t gid, const gid_t *groups, int count)
{
    for (int i = 0; i < count; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

/* getgrouplist() puts the gid that it is given in front: first the user's own, to know whether the
 * one that was asked for is among them. */
static int find_groups(struct command_user *user, gid_t gid, struct err *err)
{
    int count = 32;
    for (;;) {
        gid_t *groups = realloc(user->groups, (size_t)count * sizeof(*groups));
        if (!groups)
            return err_nomem(err);
        user->groups = groups;
        user->group_count = count;
        if (getgrouplist(user->name, user->gid, groups, &user->group_count) >= 0)
            break;
        count = MAX(user->group_count, count * 2);
        if (count > COMMAND_GROUPS_MAX)
            return err_errno(err, E2BIG, "user \"%s\" is in more than %d groups", user->name,
                             COMMAND_GROUPS_MAX);
    }
    user->in_own_group = among(gid, user->groups, user->group_count);
    if (!user->in_own_group) {
        /* In place of the primary one, which the command is not in then. */
        user->groups[0] = gid;
    }
    user->gid = gid;
    return 0;
}

int command_user_find(const char *user, const char *group, struct command_user *ret,
                      struct err *err)
{
    struct command_user found = { .changes = *user || *group };
    struct record record = { 0 };
    gid_t gid = 0;
    int r = find_user(user, *group, &record, &found, err);
    if (r == 0 && *group)
        r = find_group(group, &record, &gid, err);
    if (r == 0)
        r = find_groups(&found, *group ? gid : found.gid, err);
    free(record.buffer);
    if (r < 0) {
        command_user_done(&found);
        return -1;
    }
    /* Who may not change its groups need not, to stay who it is. */
    if (geteuid() != 0 && found.uid == geteuid() && found.gid == getegid())
        found.changes = false;
    *ret = found;
    return 0;
}

void command_user_done(struct command_user *user)
{
    free(user->name);
    free(user->home);
    free(user->shell);
    free(user->groups);
    *user = (struct command_user){ 0 };
}
