/* Stands in for pyxis on a Slurm without containers: takes the options that we render, refuses others as Slurm does,
 * and tells the task what it was given in PYXIS_GIVEN_*. No container runs. */
#include <ctype.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(pyxis, 1);

static char *names[] = {"container-image", "container-mounts", "container-workdir", "no-container-mount-home"};
enum { OPTIONS = sizeof names / sizeof *names, LENGTH = 64 };
static char *given[OPTIONS];

static int keep(int option, const char *value, int remote)
{
    (void)remote;
    free(given[option]);
    given[option] = strdup(value ? value : "yes");
    return given[option] ? ESPANK_SUCCESS : ESPANK_ERROR;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int option = 0; option < OPTIONS; option++) {
        int has_value = strncmp(names[option], "no-", 3) != 0;
        struct spank_option wanted = {names[option], has_value ? "VALUE" : NULL, "of a container", has_value, option, keep};
        if (spank_option_register(spank, &wanted) != ESPANK_SUCCESS)
            return ESPANK_ERROR;
    }
    return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int option = 0; option < OPTIONS; option++) {
        char name[LENGTH] = "PYXIS_GIVEN_";
        strncat(name, names[option], LENGTH - strlen(name) - 1);
        for (char *letter = name; *letter; letter++)
            *letter = *letter == '-' ? '_' : (char)toupper((unsigned char)*letter);
        if (given[option] && spank_setenv(spank, name, given[option], 1) != ESPANK_SUCCESS)
            return ESPANK_ERROR;
    }
    return ESPANK_SUCCESS;
}
