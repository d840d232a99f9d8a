// The etcd server, as its own main package has it. That package belongs to a module with replace
// directives, which `go install` refuses; this one can be built from the published modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
