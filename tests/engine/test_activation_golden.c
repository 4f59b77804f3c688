/* Golden traces of the activation core: tests/engine/golden/activation-*.txt hold scripts, lines
 * that begin with "> " (see activation_script.h) or "#", and below each line what must happen. A
 * trace that has become another one on purpose is written anew with WAGMA_REWRITE=1. */
/* short run: c */
#include "activation_script.h"
#include "check.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 200 };

/* The trace of the script that `golden` holds, as far as it can be done, into a new string. */
static char *play(FILE *golden, int *done) {
    char line[LONGEST], *text = NULL;
    size_t length;
    struct script *s = NULL;
    FILE *log = open_memstream(&text, &length);
    if (!log)
        abort();
    *done = 1;
    while (*done && fgets(line, sizeof line, golden)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || line[0] == 0)
            fprintf(log, "%s\n", line);
        else if (strncmp(line, "> ", 2) == 0 && !s)
            *done = (s = script_open(line + 2, log)) != NULL;
        else if (strncmp(line, "> ", 2) == 0)
            *done = script_do(s, line + 2);
    }
    if (s)
        script_close(s);
    fclose(log);
    return text;
}

/* Compares with the file from its start; 0: they differ at line *line. */
static int equals(FILE *golden, const char *text, int *line) {
    rewind(golden);
    *line = 1;
    for (int c; (c = getc(golden)) != EOF; text++) {
        if (c != (unsigned char)*text)
            return 0;
        *line += c == '\n';
    }
    return *text == 0;
}

static const char *path;

static void test_trace(void) {
    FILE *golden = fopen(path, "r");
    CHECK(golden, "%s", path);
    int done, line;
    char *text = play(golden, &done);
    const int same = equals(golden, text, &line), rewrite = done && getenv("WAGMA_REWRITE");
    fclose(golden);
    if (!same && rewrite) {
        golden = fopen(path, "w");
        CHECK(golden && fputs(text, golden) >= 0 && fclose(golden) == 0, "%s", path);
        printf("  %s is written anew\n", path);
    } else if (!same) {
        printf("%s", text);
    }
    free(text);
    CHECK(done, "%s: its last line", path);
    CHECK(same || rewrite, "%s differs at line %d; WAGMA_REWRITE=1 writes it anew", path, line);
}

int main(int argc, char **argv) {
    glob_t found;
    const char *pattern = argc > 1 ? argv[1] : "tests/engine/golden/activation-*.txt";
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t k = 0; k < found.gl_pathc; k++) {
            path = found.gl_pathv[k];
            check_run(strrchr(path, '/') ? strrchr(path, '/') + 1 : path, test_trace);
        }
    globfree(&found);
    return check_summary();
}
