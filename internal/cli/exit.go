package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-project/tutti"
)

// CommandExit is the exit code of a command that has already printed everything. If tutti ran
// another program for the user, CommandExit is the exit code of that program. Main ends the
// process with this code and prints nothing.
type CommandExit int

// Error names the code.
func (e CommandExit) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(e))
}

// The exit codes are part of the interface, because scripts depend on them. The function verdictExit maps the verdicts of
// jobs to exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitInvalid     = 2
	ExitRefused     = 3
	ExitUnreachable = 4
	ExitCancelled   = 5
	ExitDamaged     = 6
	ExitStuck       = 7
	ExitDiverging   = 8
	ExitPartial     = 9
	ExitDeferred    = 10
	ExitDiffers     = 11
	ExitNotCompared = 12
	ExitInternal    = 70
	ExitInterrupted = 130
)

const exitCodes = `   0  success
   1  the job failed: runs failed, or a wait timed out; nodes failed or refused what
      they were asked; doctor, chaos, status or policy check found something
   2  bad input: nothing was changed
   3  refused: no grant, no certificate, or a token that does not fit
   4  the server cannot be reached, or did not answer in time
   5  the job was cancelled
   6  stored data is damaged or is not what was stored: nothing was changed
   7  converge: every node that is not good waits for a missing answer
   8  converge: nodes keep changing each other's data
   9  every reachable node is good; some are disconnected, silent or paused
  10  a job that the server began: some nodes are not good; they run later, or when
      a person runs them; join: an operator must approve the machine first
  11  diff: catalogs differ
  12  diff: not all nodes were compared; the others may be equal or differ
  70  an error in tutti itself
 130  interrupted; the job goes on`

// ExitCode returns the exit code for an error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if exit, ok := errors.AsType[CommandExit](err); ok {
		return int(exit)
	}
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	switch tutti.CodeOf(err) {
	case tutti.CodeInvalid, tutti.CodeNotFound, tutti.CodeConflict:
		return ExitInvalid
	case tutti.CodeRefused, tutti.CodeUnauthenticated:
		return ExitRefused
	case tutti.CodeUnavailable, tutti.CodeDeadline:
		return ExitUnreachable
	case tutti.CodeDamaged:
		return ExitDamaged
	default:
		return ExitInternal
	}
}
