package puppet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// The function `wait` changes a result to that of a run that waits for answers.
func wait(out *tutti.Result, waits []tutti.Wait) {
	out.Outcome = tutti.Waiting
	var names []string
	for _, w := range waits {
		names = append(names, w.Query.String()+place(w.At))
	}
	out.Message = "waits for " + strings.Join(names, ", ")
	for i := range waits {
		at := &waits[i].At
		at.Resource, at.File = short(at.Resource), short(at.File)
	}
	out.Waits = tutti.RoomForWaits(waits)
}

// The function `place` returns the known parts of the place where a question was asked.
func place(at tutti.Place) string {
	where := at.File
	if at.Line > 0 {
		where += fmt.Sprintf(":%d", at.Line)
	}
	parts := slices.DeleteFunc([]string{at.Resource, where}, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
