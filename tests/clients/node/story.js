// kafkajs through the story of test_clients.py; its results as JSON.
//
//     node story.js HOST:PORT NAME

const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [servers, name] = process.argv.slice(2);
const out = `${name}-out`;
const brief = `${name}-brief`;
const group = `${name}-group`;
const kafka = new Kafka({ brokers: [servers], logLevel: logLevel.NOTHING });

const range = (start, end) => Array.from({ length: end - start }, (_, n) => start + n);

// Settles once a condition holds; the events of the client are what changes it.
const until = async (holds) => {
  while (!holds()) await new Promise((later) => setTimeout(later, 20));
};

async function produce(producer, numbers) {
  const messages = numbers.map((n) => ({
    key: `k${n}`,
    value: `v${n}`,
    headers: { n: `${n}` },
    partition: n % 3,
  }));
  const answers = await producer.send({ topic: name, messages, compression: CompressionTypes.GZIP });
  // An answer names the first offset of a batch.
  return answers
    .flatMap((each) => range(0, 10).map((n) => [each.partition, Number(each.baseOffset) + n]))
    .sort();
}

// A consumer whose records and whose partitions can be looked at.
async function member(groupId, topic, each, isolation = { readUncommitted: false }) {
  const consumer = kafka.consumer({
    groupId,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 200,
    rebalanceTimeout: 20000,
    ...isolation,
  });
  const found = { consumer, owned: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    found.owned = payload.memberAssignment[topic] || [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ eachMessage: async (got) => each.push(got) });
  return found;
}

const value = ({ message }) => message.value.toString();

const shown = ({ partition, message }) =>
  `${partition}:${message.offset}:${message.key}=${message.value};n=${message.headers.n}`;

async function transform() {
  const producer = kafka.producer({
    transactionalId: `${name}-id`,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  for (const [text, ends] of [["t0", true], ["a0", false], ["t1", true]]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic: out, messages: [{ value: text }] });
    await (ends ? transaction.commit() : transaction.abort());
  }
  const read = [];
  const reader = await member(`${name}-copy`, name, read);
  await until(() => read.length === 60);
  const transaction = await producer.transaction();
  const messages = read.map((each) => ({ value: value(each).toUpperCase() }));
  await transaction.send({ topic: out, messages });
  const partitions = range(0, 3).map((partition) => ({ partition, offset: "20" }));
  const topics = [{ topic: name, partitions }];
  await transaction.sendOffsets({ consumerGroupId: `${name}-copy`, topics });
  await transaction.commit();
  await reader.consumer.disconnect();
  await producer.disconnect();
}

async function story() {
  const told = {};
  const admin = kafka.admin();
  await admin.connect();
  const topics = [
    { topic: name, numPartitions: 3 },
    { topic: out, numPartitions: 1 },
    { topic: brief, numPartitions: 1 },
  ];
  await admin.createTopics({ topics, waitForLeaders: true });
  const metadata = await admin.fetchTopicMetadata({ topics: [name] });
  told.partitions = metadata.topics[0].partitions.length;

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  told.offsets = await produce(producer, range(0, 30));

  const first = [];
  const second = [];
  const one = await member(group, name, first);
  await until(() => first.length === 30);
  told.first = first.map(shown).sort();
  const reached = range(0, 3).map((partition) => ({ topic: name, partition, offset: "10" }));
  await one.consumer.commitOffsets(reached);
  const [committed] = await admin.fetchOffsets({ groupId: group, topics: [name] });
  told.committed = committed.partitions.map(({ offset }) => Number(offset));

  const other = await member(group, name, second);
  const sizes = () => [one.owned.length, other.owned.length].sort();
  await until(() => sizes().join() === "1,2");
  told.owned = sizes();
  await produce(producer, range(30, 60));
  await until(() => first.length + second.length >= 60);
  told.second = [...first.slice(30), ...second].map(value).sort();
  for (const each of [one, other]) await each.consumer.disconnect();
  await producer.disconnect();

  await transform();
  const committedOnly = [];
  const all = [];
  const readers = [
    await member(`${name}-committed`, out, committedOnly),
    await member(`${name}-all`, out, all, { readUncommitted: true }),
  ];
  await until(() => committedOnly.length >= 62 && all.length >= 63);
  told.transformed = committedOnly.map(value).sort();
  told.all = all.length;
  for (const each of readers) await each.consumer.disconnect();

  const { groups } = await admin.describeGroups([group]);
  told.group = groups[0].state;
  await admin.deleteGroups([group]);
  await admin.deleteTopics({ topics: [brief] });
  const listed = (await admin.listGroups()).groups.map(({ groupId }) => groupId);
  while ((await admin.listTopics()).includes(brief)); // a controller answers before the broker
  told.gone = !listed.includes(group);
  await admin.disconnect();
  return told;
}

story().then(
  (told) => console.log(JSON.stringify(told)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
