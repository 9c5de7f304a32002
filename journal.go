package tutti

import (
	"regexp"
	"strings"
)

// If systemd could not start, stop or restart a unit, Puppet adds the last 50 lines of the unit's
// journal to its message. The code is in provider/service/systemd.rb, prepare_error_message, and is
// the same in 7.23 and 8.10. Puppet logs this text twice, and the event in the report contains it a
// third time.
const journalMark = "\njournalctl log for "

// These constants bound the part of a journal that stays in a message. The reason of a failure is in the last lines of
// a journal.
const (
	maxJournalLines = 20
	maxJournalLine  = 300     // bytes
	maxJournal      = 3 << 10 // bytes
)

// SplitJournal splits Puppet's message about a service into Puppet's own words, the name of the unit,
// and the last lines of the unit's journal. SplitJournal returns at most 20 lines, with at most 3 KiB in total. If the
// message has no journal, SplitJournal returns the text unchanged.
func SplitJournal(text string) (said, unit string, journal []string) {
	said, rest, is := strings.Cut(text, journalMark)
	unit, lines, named := strings.Cut(rest, ":\n")
	if !is || !named || !strings.Contains(said, "Systemd ") || strings.Contains(unit, "\n") {
		return text, "", nil
	}
	size := 0
	for rest, line := lines, ""; rest != ""; {
		rest, line = lastLine(rest)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "-- ") { // "-- " begins the first line of a journal
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

// lastLine separates the last line from a text.
func lastLine(text string) (before, line string) {
	i := strings.LastIndexByte(text, '\n')
	return text[:max(i, 0)], text[i+1:]
}

// CutJournal shortens the journal in Puppet's message about a service to its last lines. Without
// CutJournal a bound on the whole message could cut off these lines.
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

// WithoutJournal writes Puppet's message about a service in one line. The last line that the unit itself
// wrote replaces the journal. Time, host and process are removed from the last line, so that the text is the
// same on all nodes.
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
