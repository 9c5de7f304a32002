package selector

import (
	"cmp"
	"math/big"
	"regexp"
	"strings"
)

var versionPart = regexp.MustCompile(`[-.]|\d+|[^-.\d]+`)

// CompareVersions orders versions in the same way as versioncmp of Puppet 7 and 8 (Puppet::Util::Package). The result is
// negative if a is older than b.
func CompareVersions(a, b string) int {
	as, bs := versionPart.FindAllString(a, -1), versionPart.FindAllString(b, -1)
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return compareParts(as[i], bs[i])
		}
	}
	return cmp.Compare(a, b)
}

func compareParts(a, b string) int {
	for _, separator := range []string{"-", "."} {
		switch separator {
		case a:
			return -1
		case b:
			return 1
		}
	}
	if isNumber(a) && isNumber(b) && a[0] != '0' && b[0] != '0' {
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		return x.Cmp(y)
	}
	return cmp.Compare(strings.ToUpper(a), strings.ToUpper(b))
}

func isNumber(part string) bool { return strings.Trim(part, "0123456789") == "" }
