import {connect} from '@nats-io/transport-node';
import {Client} from '@countersign/sdk';
import {natsTransport} from '@countersign/sdk/nats';

const who = {tenant: 'acme', publisher: 'web1'};
new Client({transport: natsTransport(await connect({servers: 'nats://x'}), who), ...who, publicKey: 'x'});
