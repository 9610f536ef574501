/* sandstorm: the command line client. next: cli/cli.c, which finds the verb in cli/verbs.c. */
#include "cli/cli.h"

#include "common/version.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* For the build: "--man" is the page of the program, "--man token-create" that of a verb. */
static int print_man(const char *name)
{
    char title[128];
    (void)snprintf(title, sizeof(title), "sandstorm%s%s", *name ? "-" : "", name);
    const struct cli_verb *verb = cli_find_page(&cli_root, title);
    if (!verb) {
        cli_complain("there is no verb of that name to print a manual page of");
        return 2;
    }
    cli_man(verb, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    /* A peer or a reader that is gone is an error to be told, not a reason to vanish. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("sandstorm %s\n", SANDSTORM_VERSION);
        return 0;
    }
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "--man") == 0)
        return print_man(argc == 3 ? argv[2] : "");
    int status = cli_run(&cli_root, argc, argv);
    /* A reader that has seen enough is no fault; a disk that is full is one. */
    if (fflush(stdout) != 0 && errno != EPIPE) {
        cli_complain("cannot write to stdout; is the disk full?");
        return 1;
    }
    return status;
}
