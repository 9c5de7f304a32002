package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// didYouMean is the beginning of a hint that names a similar word.
const didYouMean = "did you mean "

// maxKnown is how many words a hint lists at most.
const maxKnown = 16

// The function `suggest` returns a hint with the most similar known word, or with a list of the known words.
func suggest(word string, known []string) string {
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	best, least := "", min(len(word)/3+2, 5)
	for _, k := range known {
		// If two words are equally similar, prefer the word that begins with the given word.
		if d := distance(strings.ToLower(word), k); d < least || d == least && best != "" && strings.HasPrefix(k, strings.ToLower(word)) {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf(didYouMean+"%q?", best)
	case len(known) == 0:
		return "there is none"
	case len(known) > maxKnown:
		return fmt.Sprintf("there are %d: %s, …", len(known), strings.Join(known[:maxKnown], ", "))
	}
	return "there are: " + strings.Join(known, ", ")
}

// The function `distance` returns how many letters must be added, removed or replaced to change a into b.
func distance(a, b string) int {
	// Names are short. A long text is not a misspelt name, so do not spend time on it.
	if len(a) > 300 || len(b) > 300 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// capitalHint suggests the name of a resource type with correct capitals, if only the capitals are wrong.
func capitalHint(name string) string {
	parts := strings.Split(strings.ToLower(name), "::")
	for i, p := range parts {
		if p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	proposal := strings.Join(parts, "::")
	if tutti.ValidateType(proposal) != nil {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", proposal)
}
