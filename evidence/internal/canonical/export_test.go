package canonical

// ResolvePointer is what Locate is compared with.
var ResolvePointer = resolvePointer
