/* The runner's own oom_score_adj, and what its children get instead. agent/runner_main.c calls;
 * agent/spawn.c writes the children's. */
#include "agent/oom.h"

#include "common/file.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int write_score(const char *path, int score, struct err *err)
{
    char text[OOM_TEXT_MAX];
    int length = snprintf(text, sizeof(text), "%d", score);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)length) < 0)
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

void oom_protect(const char *path, char ret[OOM_TEXT_MAX])
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    struct err err;
    *ret = '\0';
    if (file_read(path, OOM_TEXT_MAX, &text, &size, &err) < 0) {
        log_debug("the runner is not protected from running out of memory", LF_ERR(&err));
        return;
    }
    int before = (int)strtol(text, NULL, 10);
    int ours = MIN(before, OOM_RUNNER_SCORE);
    if (before > ours && write_score(path, ours, &err) < 0) {
        /* Lowering it takes CAP_SYS_RESOURCE. A service manager can do it for us. */
        log_debug("the runner is not protected from running out of memory", LF_ERR(&err));
        ours = before;
    }
    if (ours != MAX(before, 0))
        (void)snprintf(ret, OOM_TEXT_MAX, "%d", MAX(before, 0));
}
