package fleet

import (
	"bytes"
	"regexp"
	"strconv"
)

var (
	syntaxRE = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)`)
	// parserRE matches the errors whose line the YAML library counts from 0. The library
	// corrects only the lines of errors of its scanner (decode.go, parser.fail).
	parserRE = regexp.MustCompile(`^did not find expected (<|node|'-'|key|',')`)
	anchorRE = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// syntaxError returns the line and the message of a YAML error. If the error has no line, syntaxError returns line 1.
func syntaxError(source []byte, err error) (int, string) {
	match := syntaxRE.FindStringSubmatch(err.Error())
	line, message := 1, match[2]
	if n, err := strconv.Atoi(match[1]); err == nil {
		line = max(n, 1)
	}
	if parserRE.MatchString(message) && match[1] != "" {
		line++
	}
	if anchor := anchorRE.FindStringSubmatch(message); anchor != nil {
		before, _, _ := bytes.Cut(source, []byte("*"+anchor[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	}
	return line, message
}
