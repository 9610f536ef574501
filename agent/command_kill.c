/* The end that somebody else wants: TERM to the whole tree, KILL to what is left when the grace has
 * passed, and when not even that ends it, an honest end all the same. agent/command.c decides when
 * (timeout, cancel, client gone, the runner stops); agent/tree.h knows who the tree is. */
#include "agent/command-internal.h"
#include "common/log.h"

#include <signal.h>

/* A process that hangs in the kernel cannot be waited for: its command ends, it is a survivor. */
static void on_patience_over(void *userdata)
{
    struct command *command = userdata;
    log_warn("processes do not end by SIGKILL", LF_STR("command", command->id.text),
             LF_UINT("processes", tree_count(command->tree)));
    if (command->state == COMMAND_RUNNING) {
        /* Whenever the leader does end, the reaper takes it. */
        reaper_unwatch(TAKE_PTR(command->child));
        close_fd(&command->pidfd);
        command_judge(command, NULL, NULL);
    }
    command_drain(command);
}

static void on_kill(void *userdata)
{
    struct command *command = userdata;
    tree_kill(command->tree);
    loop_timer_start(command->patience, COMMAND_PATIENCE_US);
}

int command_kill_init(struct command *command, struct err *err)
{
    struct loop *loop = command->host.loop;
    if (loop_timer_new(loop, on_kill, command, &command->kill, err) < 0)
        return -1;
    return loop_timer_new(loop, on_patience_over, command, &command->patience, err);
}

void command_kill_softly(struct command *command, uint64_t grace_us)
{
    /* That there is nobody to signal is no failure here: then the end is near anyway. An
     * interactive shell ignores TERM; at a hangup it ends and takes its jobs along. */
    if (command->terminal)
        (void)tree_signal(command->tree, SIGHUP, NULL);
    (void)tree_signal(command->tree, SIGTERM, NULL);
    /* A stopped process would never see it. */
    (void)tree_signal(command->tree, SIGCONT, NULL);
    loop_timer_start(command->kill, grace_us);
}

static void on_tree_empty(void *userdata)
{
    command_drain(userdata);
}

void command_clear(struct command *command)
{
    command_set_state(command, COMMAND_CLEARING);
    if (!loop_timer_running(command->kill))
        on_kill(command); /* the grace is over, or there is none: what the first look missed */
    command_wait_cleared(command);
}

void command_wait_cleared(struct command *command)
{
    struct err err;
    int r = tree_wait_empty(command->tree, on_tree_empty, command, &err);
    if (r == 1)
        command_drain(command);
    else if (r < 0)
        /* The timers lead on: KILL, and then the end of our patience. */
        log_warn("cannot wait for the rest of a command", LF_STR("command", command->id.text),
                 LF_ERR(&err));
}

void command_kill_done(struct command *command)
{
    loop_timer_stop(command->kill);
    loop_timer_stop(command->patience);
}
