package tutti

import (
	"regexp"
	"strings"
)

// Puppet adds the last 50 lines of a unit's journal to its words when systemd could not start, stop
// or restart it (provider/service/systemd.rb, prepare_error_message; the same in 7.23 and 8.10). It
// logs that text twice, and the event in the report has it once more.
const journalMark = "\njournalctl log for "

// Bounds of what is kept of a journal in a message: its last lines say why.
const (
	maxJournalLines = 20
	maxJournalLine  = 300     // bytes
	maxJournal      = 3 << 10 // bytes
)

// SplitJournal splits what Puppet says of a service into its own words, the name of the unit, and the
// last lines of its journal: 20 at most, of 3 KiB together. Without a journal it returns the text.
func SplitJournal(text string) (said, unit string, journal []string) {
	said, rest, is := strings.Cut(text, journalMark)
	unit, lines, named := strings.Cut(rest, ":\n")
	if !is || !named || !strings.Contains(said, "Systemd ") || strings.Contains(unit, "\n") {
		return text, "", nil
	}
	size := 0
	for rest, line := lines, ""; rest != ""; {
		rest, line = lastLine(rest)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "-- ") { // where a journal begins
			continue
		}
		line = Plain(line, maxJournalLine)
		if size += len(line) + 1; len(journal) == maxJournalLines || size > maxJournal {
			break
		}
		journal = append([]string{line}, journal...)
	}
	return strings.TrimSuffix(said, "!"), unit, journal
}

// lastLine cuts the last line off a text.
func lastLine(text string) (before, line string) {
	i := strings.LastIndexByte(text, '\n')
	return text[:max(i, 0)], text[i+1:]
}

// CutJournal shortens the journal in what Puppet says of a service to its last lines, so that a bound
// on the whole message does not cut off these.
func CutJournal(text string) string {
	said, unit, journal := SplitJournal(text)
	if unit == "" {
		return text
	}
	return said + "!" + journalMark + unit + ":\n" + strings.Join(journal, "\n")
}

var (
	journalStampRE = regexp.MustCompile(`^[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ `)
	journalPidRE   = regexp.MustCompile(`^([^:\[]{1,64})\[\d+\]:`)
)

// WithoutJournal says in one line what Puppet says of a service: in place of the journal stands the last
// line that the unit itself wrote there, without time, host and process, so that it is the same on all nodes.
func WithoutJournal(text string) string {
	said, unit, journal := SplitJournal(text)
	if unit == "" {
		return text
	}
	for i := len(journal) - 1; i >= 0; i-- {
		line := journalPidRE.ReplaceAllString(journalStampRE.ReplaceAllString(journal[i], ""), "$1:")
		if !strings.HasPrefix(line, "systemd:") {
			return said + ": " + line
		}
	}
	return said
}
