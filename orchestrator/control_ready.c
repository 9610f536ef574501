#include "orchestrator/control.h"

CONTROL_LATER(control_sandbox_ready)
{
    (void)userdata;
    (void)ticket;
    (void)request;
    return err_set(err, ERR_UNIMPLEMENTED, "not in this build");
}
