#include "orchestrator/control.h"

CONTROL_LATER(control_list_commands)
{
    (void)userdata;
    (void)ticket;
    (void)request;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}
