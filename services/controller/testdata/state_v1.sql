-- A state file of schema version 1, as text: tables and revisions as the first controller wrote them.
BEGIN TRANSACTION;
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, model TEXT NOT NULL, vector TEXT NOT NULL);
INSERT INTO "epochs" VALUES(41,2000000000.0,'m','{"canary_rate":0.015625,"epoch":41,"frozen":false,"layers":[[4,16,16,16],[16,16,16,16]],"model":"m","reference_length":4096}');
CREATE TABLE flips (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, unix_seconds REAL NOT NULL, model TEXT NOT NULL,
                      layer INTEGER NOT NULL, from_bits INTEGER NOT NULL, to_bits INTEGER NOT NULL, first INTEGER NOT NULL);
INSERT INTO "flips" VALUES(1,41,2000000000.0,'m',0,16,4,0);
CREATE TABLE models (model TEXT PRIMARY KEY, unix_seconds REAL NOT NULL, state TEXT NOT NULL);
INSERT INTO "models" VALUES('m',2000000000.0,'{"firings":17,"flips":[5,0],"model":"m","model_name":"Model","published":{"canary_rate":0.015625,"epoch":41,"frozen":false,"layers":[[4,16,16,16],[16,16,16,16]],"model":"m","reference_length":4096},"published_decided":[1,0],"ranks":[[{"decided":false,"latent":[[0.0,0],[0.0,0],[0.0,0]],"plain":[[0.0,0],[0.0,0],[0.0,0]],"stable":[0,0,0],"tier":[16,16,16,16]},{"decided":true,"latent":[[0.0,0],[0.0,0],[0.0,0]],"plain":[[0.0,0],[0.0,0],[0.0,0]],"stable":[1,2,3],"tier":[16,16,8,16]}],[{"decided":false,"latent":[[0.7,1],[0.0,0],[0.0,0]],"plain":[[0.10000000000000002,3],[0.3333333333333333,3],[1e-300,3]],"stable":[0,0,0],"tier":[16,16,16,16]},{"decided":false,"latent":[[0.0,0],[0.0,0],[0.0,0]],"plain":[[0.0,0],[0.0,0],[0.0,0]],"stable":[0,0,0],"tier":[16,16,16,16]}]],"unit_epoch":18446744073709551615}');
CREATE TABLE revisions (revision INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
                          before TEXT NOT NULL, after TEXT NOT NULL);
INSERT INTO "revisions" VALUES(1,1.79608765424777293206e+09,'me@host','reason ä "quoted"','{"alpha":0.1,"canary_rate":0.015625,"demote_after":3,"frozen":false,"hysteresis":0.2,"reference_length":4096,"tau":0.022}','{"alpha":0.1,"canary_rate":0.015625,"demote_after":3,"frozen":false,"hysteresis":0.2,"reference_length":4096,"tau":0.02}');
INSERT INTO "revisions" VALUES(2,1.79608765430918264393e+09,'me@host','reason ä "quoted"','{"alpha":0.1,"canary_rate":0.015625,"demote_after":3,"frozen":false,"hysteresis":0.2,"reference_length":4096,"tau":0.02}','{"alpha":0.1,"canary_rate":0.015625,"demote_after":3,"frozen":false,"hysteresis":0.2,"reference_length":4096,"tau":0.03}');
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(1);
COMMIT;
