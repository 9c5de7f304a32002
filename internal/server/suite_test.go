package server_test

import (
	"testing"

	"github.com/tutti-project/tutti/internal/servertest"
)

func itself(_ *testing.T, f *servertest.Fleet) servertest.API { return f.Server }

func TestServerIsJobs(t *testing.T)      { servertest.TestJobs(t, itself) }
func TestServerIsNodes(t *testing.T)     { servertest.TestNodes(t, itself) }
func TestServerIsTokens(t *testing.T)    { servertest.TestTokens(t, itself) }
func TestServerIsOperators(t *testing.T) { servertest.TestOperators(t, itself) }
func TestServerIsCodes(t *testing.T)     { servertest.TestCodes(t, itself) }
func TestServerIsValues(t *testing.T)    { servertest.TestValues(t, itself) }
func TestServerIsPauses(t *testing.T)    { servertest.TestPauses(t, itself) }
func TestServerIsExplains(t *testing.T)  { servertest.TestExplains(t, itself) }
func TestServerIsRemotes(t *testing.T)   { servertest.TestRemotes(t, itself) }
func TestServerIsReports(t *testing.T)   { servertest.TestReports(t, itself) }
