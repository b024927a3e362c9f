// Echoes for one connection. Go makes its system calls itself.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	listener, failed := net.Listen("tcp", os.Args[1])
	if failed != nil {
		panic(failed)
	}
	fmt.Println("ready")
	connection, failed := listener.Accept()
	if failed != nil {
		panic(failed)
	}
	if _, failed := io.Copy(connection, connection); failed != nil {
		panic(failed)
	}
	connection.Close()
}
